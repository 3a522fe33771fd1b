"""Fair share as the controller keeps it: where few associations are reckoned, and where many."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.controller.scheduler import shares
from spritz.controller.scheduler.shares import Shares
from spritz.model.limits.records import Association, Policy, Qos, SetPolicy
from spritz_testing.builders import World
from tests.unit.controller.heard import Heard

POLICY = Policy(
    version=1,
    associations=(
        Association(id=1, cluster="cluster", account="root", qos="normal"),
        Association(id=2, cluster="cluster", account="chem", parent="root"),
        Association(id=3, cluster="cluster", account="chem", user="alice", is_default=True),
        Association(id=4, cluster="cluster", account="chem", user="bob"),
        Association(id=5, cluster="cluster", account="chem", user="bob", partition="debug"),
    ),
    qos=(Qos(name="normal", id=1),),
)


@pytest.mark.parametrize("inline_max", [shares.INLINE_MAX, 0], ids=["here", "in a child"])
def test_factors_are_handed_on(inline_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "INLINE_MAX", inline_max)
    asyncio.run(handed_on())


async def handed_on() -> None:
    made = World()
    made.ok(SetPolicy(policy=POLICY))
    made.start(made.submit())
    made.now += 100
    taken: asyncio.Future[tuple[Any, Any]] = asyncio.get_running_loop().create_future()
    context: Any = SimpleNamespace(
        machine=made.machine,
        clock=SimpleNamespace(now=lambda: made.now),
        writer=SimpleNamespace(listeners=Heard(), handle_own=made.do),
        log=SimpleNamespace(error=lambda *_, **__: None),
    )

    def take(factors: object, special: object) -> None:
        if not taken.done():
            taken.set_result((factors, special))

    kept = Shares(context, take)
    async with asyncio.timeout(60):
        factors, special = await taken
    assert factors == {("chem", "alice"): pytest.approx(1 / 3), ("chem", "bob"): 1.0}
    assert special == {("chem", "bob", "debug"): 1.0}
    assert kept.current()[3].usage == pytest.approx(100.0)
    kept.stop()


def test_priorities_that_are_shown_have_the_fair_share_of_this_moment() -> None:
    """sprio and sshare tell the same; asked every moment, it is not reckoned each time."""
    asyncio.run(refreshed())


async def refreshed() -> None:
    made = World()
    made.ok(SetPolicy(policy=POLICY))
    made.start(made.submit())
    taken: list[object] = []
    context: Any = SimpleNamespace(
        machine=made.machine,
        clock=SimpleNamespace(now=lambda: made.now),
        writer=SimpleNamespace(listeners=Heard(), handle_own=made.do),
        log=SimpleNamespace(error=lambda *_, **__: None),
    )
    kept = Shares(context, lambda factors, _special: taken.append(factors))
    made.now += 1
    kept.refresh()
    assert len(taken) == 1
    made.now += 100
    kept.refresh()
    kept.refresh()
    assert len(taken) == 2
    assert taken[0] != taken[1]
    kept.stop()
