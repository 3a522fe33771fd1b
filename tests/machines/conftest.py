"""Clusters on machines of their own, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.people import Person, made_people
from tests.e2e.users import others_can_run
from tests.machines.lan import Lan, Machine


@pytest.fixture(scope="module")
def lan() -> Iterator[Lan]:
    """alpha has the controller, beta is a node behind nothing, gamma a login host, delta a node behind a router."""
    with Lan() as made:
        yield made


@pytest.fixture(scope="module")
def people() -> Iterator[dict[str, Person]]:
    """alice and bob."""
    if not others_can_run():
        pytest.skip("other users cannot run the installed commands")
    with made_people("alice", "bob") as made:
        yield made


@pytest.fixture(scope="module")
def alpha(lan: Lan) -> Machine:
    """The controller's machine, and a node."""
    machine = lan.machine("alpha")
    machine.out("spritz", "up", "--listen", machine.address, "--quiet")
    return machine


def joined(alpha: Machine, machine: Machine, role: str = "node") -> Machine:
    """The machine after it has joined by a token."""
    line = alpha.out("spritz", "token", "create", "--role", role, "--uses", "1").split()
    machine.out(*line)
    return machine


@pytest.fixture(scope="module")
def beta(lan: Lan, alpha: Machine) -> Machine:
    """A node that has joined."""
    return joined(alpha, lan.machine("beta"))


@pytest.fixture(scope="module")
def gamma(lan: Lan, alpha: Machine) -> Machine:
    """A login host that has joined."""
    return joined(alpha, lan.machine("gamma"), "login")
