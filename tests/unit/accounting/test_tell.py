"""Controllers hear of an edit what differs for them, and all of it where that would not do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct

from spritz.accounting.api import Api
from spritz.accounting.associations.store import ensure, policy_of, read_book
from spritz.client.errors import RemoteError
from spritz.model.accounting.records import EventsFlushed, FlushEvents
from spritz.model.commands.job import Done
from spritz.model.limits.change import amended
from spritz.model.limits.records import (
    Account,
    AskPolicy,
    Association,
    ChangePolicy,
    EditBook,
    Policy,
    Record,
    SetPolicy,
)
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz.wire.envelope import failure
from tests.databases import open_store


class Controller:
    """A connected controller: the policy it has, and what it was told."""

    def __init__(self) -> None:
        self.policy = Policy()
        self.told: list[Struct] = []

    async def call(self, request: Struct, kind: type[Any], *, timeout: float) -> Done | EventsFlushed:
        if isinstance(request, FlushEvents):
            return EventsFlushed(sequence=0)
        self.told.append(request)
        if isinstance(request, ChangePolicy):
            if request.change.base != self.policy.version:
                raise RemoteError(failure("SLURM_ERROR", "another policy"))
            self.policy = amended(self.policy, request.change)
        else:
            assert isinstance(request, SetPolicy)
            self.policy = request.policy
        return Done()

    def on_close(self, callback: object) -> None:
        """Never."""


class Site:
    """slurmdbd with two controllers, in a loop of its own."""

    def __init__(self, directory: Path) -> None:
        self.store = open_store(directory / "book.db")
        for cluster in ("c1", "c2"):
            ensure(self.store.engine, cluster, 1.0)
        self.loop = asyncio.new_event_loop()
        self.api = Api(self.store, SystemClock(), get_logger("test"), os.geteuid())
        self.table = self.api.handlers()
        self.one, self.two = Controller(), Controller()
        for cluster, controller in (("c1", self.one), ("c2", self.two)):
            channel: Any = controller
            self.api.links.connect(cluster, channel, 0)
            self.call(AskPolicy(cluster=cluster), controller)

    def call(self, request: Struct, controller: Controller | None = None) -> Any:
        caller = SimpleNamespace(uid=os.geteuid())
        call: Any = SimpleNamespace(caller=caller, channel=controller)

        async def ask() -> Any:
            result: Any = self.table[type(request)](request, call)
            return await result

        return self.loop.run_until_complete(ask())

    def edit(self, *puts: Record, drops: tuple[Record, ...] = ()) -> None:
        version = read_book(self.store.engine).version
        assert not self.call(EditBook(version=version, puts=puts, drops=drops)).stale

    def whole(self, cluster: str) -> Policy:
        return policy_of(read_book(self.store.engine), cluster)

    def close(self) -> None:
        self.api.close()
        self.loop.close()
        self.store.engine.dispose()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def chem(cluster: str, shares: int = 1) -> Association:
    return Association(id=-1, cluster=cluster, account="chem", parent="root", shares=shares)


def test_an_edit_sends_only_differences_and_only_to_clusters_that_it_concerns(site: Site) -> None:
    assert [type(one) for one in site.one.told] == [SetPolicy]
    assert site.one.policy == site.whole("c1")
    site.edit(Account(name="chem"), chem("c1"))
    (change,) = [one.change for one in site.one.told[1:] if isinstance(one, ChangePolicy)]
    assert [association.account for association in change.associations] == ["chem"]
    assert change.qos == ()
    assert site.one.policy == site.whole("c1")
    assert len(site.two.told) == 1, "nothing of it is about the second cluster"
    # Which goes on from the version that it was told last.
    site.edit(chem("c2"))
    assert [type(one) for one in site.two.told] == [SetPolicy, ChangePolicy]
    assert site.two.policy == site.whole("c2")
    (there,) = [association for association in site.one.policy.associations if association.account == "chem"]
    site.edit(drops=(there,))
    assert site.one.policy.associations == site.whole("c1").associations
    assert all(not isinstance(one, SetPolicy) for one in site.one.told[1:])


def test_a_controller_with_another_policy_is_told_all_of_it(site: Site) -> None:
    site.one.policy = Policy(version=99)
    site.edit(Account(name="chem"), chem("c1"))
    assert [type(one) for one in site.one.told[1:]] == [ChangePolicy, SetPolicy]
    assert site.one.policy == site.whole("c1")


def test_an_edit_by_another_slurmdbd_leaves_a_gap_that_is_filled_whole(site: Site) -> None:
    from spritz.accounting.associations.store import edit_book

    version = read_book(site.store.engine).version
    edit_book(
        site.store.engine, EditBook(version=version, puts=(Account(name="chem"), chem("c1"))), "x", 2.0, admin=True
    )
    site.edit(chem("c2"))
    assert [type(one) for one in site.one.told[1:]] == [SetPolicy]
    assert site.one.policy == site.whole("c1")
