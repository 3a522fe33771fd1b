"""srun and salloc give an allocation back: what they do while the controller does not answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from spritz.cli.jobs.launch import controller as launch_controller
from spritz.cli.jobs.launch.allocation import give_back
from spritz.cli.jobs.launch.controller import Controller
from spritz.client.channel.handling import DEFERRED, Call, Deferred
from spritz.client.errors import ClientError
from spritz.client.locate import controller_socket_name
from spritz.model.commands.job import Done, FinishAllocation
from spritz.stepd.reactor import Reactor
from tests.unit.client.conversation import serving

GiveBack = Callable[[int], list[FinishAllocation]]


@pytest.fixture
def given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GiveBack:
    """Give job 7 back to a controller whose connection breaks so many times before it answers; returns the requests."""
    name = f"patience{os.getpid()}"
    user = "root" if os.getuid() == 0 else str(os.getuid())
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"ClusterName={name}\nSlurmctldHost=localhost\nSlurmctldPort=1\nSlurmUser={user}\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setattr(launch_controller, "_RETRY_SECONDS", 0.01)

    def run(breaks: int) -> list[FinishAllocation]:
        requests: list[FinishAllocation] = []

        def handle(request: FinishAllocation, call: Call) -> Struct | Deferred:
            requests.append(request)
            if len(requests) <= breaks:
                call.channel.pipe.abort()
                return DEFERRED
            return Done()

        with serving({FinishAllocation: handle}, controller_socket_name(name, 1)):
            controller = Controller(Reactor())
            try:
                give_back(controller, 7, 3 << 8)
            finally:
                controller.close()
        return requests

    return run


@pytest.mark.parametrize("breaks", [0, 1, 3])
def test_the_end_is_told_until_it_is_heard(given_back: GiveBack, breaks: int) -> None:
    requests = given_back(breaks)
    assert len(requests) == breaks + 1
    assert {request.exit_status for request in requests} == {3 << 8}


def test_patience_ends(given_back: GiveBack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spritz.cli.jobs.launch.allocation.PATIENCE_SECONDS", 0.1)
    with pytest.raises(ClientError):
        given_back(1_000_000)
