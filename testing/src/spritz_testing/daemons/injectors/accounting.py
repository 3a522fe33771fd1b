"""Faults of slurmdbd, its database and its host: those of `accounting.faults`, as kinds of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz_testing.daemons import faults
from spritz_testing.daemons.accounting.faults import KINDS
from spritz_testing.daemons.accounting.faults import Kind as AccountingKind
from spritz_testing.daemons.history import Injected

if TYPE_CHECKING:
    from spritz_testing.daemons.plan import Action
    from spritz_testing.daemons.site import Site
    from spritz_testing.daemons.system.world import Process

#: A database that is set back to a copy has lost records that nothing can bring back: tests of its own look at that.
_APART = frozenset({"accounts backed up", "accounts set back"})

#: How often each comes compared with faults of other parts, of which there are many more.
_WEIGHT = 2.5

#: Seconds from the end of a cut to the batch whose answer is lost, at most.
_BATCH_SECONDS = 60.0


def _add(name: str, kind: AccountingKind) -> None:
    def perform(site: Site, action: Action, seconds: float) -> str | None:
        if site.accounting is None:
            return None
        kind.act(site.accounting, action.data)
        return " ".join(f"{key}={value}" for key, value in action.data.items() if key != "draw")

    faults.add(
        faults.Kind(name=name, targets=("slurmdbd",), weight=_WEIGHT, part="accounting", details=kind.draw), perform
    )


def _batch_lost(site: Site, action: Action, seconds: float) -> str | None:
    """slurmdbd is cut off from controllers; the batch of all that has happened meanwhile is stored, and its answer is
    lost, with slurmdbd or with the connection.
    """
    accounting, world, network = site.accounting, site.world, site.world.network
    if accounting is None:
        return None
    here, is_killed = accounting.host.name, int(action.data["draw"]) & 1
    for host in site.controllers:
        network.cut(here, host.name, seconds)
        network.cut(host.name, here, seconds)

    def told(client: Process, server: Process, data: bytes) -> None:
        if b"StoreEvents" in data and server.host is accounting.host and told in network.on_bytes:
            over()
            accounting.database.when("committed", 1, lose)

    def lose() -> None:
        world.tell(f"fault: {action.kind}, the {'daemon' if is_killed else 'connection'} of {here}")
        site.history.add(Injected(at=world.now, until=world.now, kind=action.kind, target=here))
        if is_killed:
            accounting.unit.kill()
        else:
            network.reset(here)

    def over() -> None:
        network.on_bytes = [other for other in network.on_bytes if other is not told]

    world.after(seconds, lambda: network.on_bytes.append(told))
    world.after(seconds + _BATCH_SECONDS, over)
    return here


faults.add(
    faults.Kind(name="slurmdbd loses its answer", targets=("slurmdbd",), seconds=(5, 300), weight=4, part="accounting"),
    _batch_lost,
)

for _name, _kind in KINDS.items():
    if _name not in _APART:
        _add(_name, _kind)
