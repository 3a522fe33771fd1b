"""Rule 5: nothing is tried again without a pause. Counts what a process does in each second of virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz_testing.daemons.system.world import EPOCH

if TYPE_CHECKING:
    from spritz_testing.daemons.system.world import World

RETRIES_PAUSE = "5: nothing is tried again without a pause"

#: Most attempts of a process to connect to one peer, and refused forks of one kind, within a second.
CONNECTIONS_MAX = 30
FORKS_MAX = 1
#: Most requests of one kind that are sent within a second: all of a cluster's nodes may register at once.
REQUESTS_MAX = 150
#: The same for questions who leads (each command that waits for a controller asks 20 times a second), and for scripts,
#: all of which are read at the end.
PINGS_MAX = 1_000
OFTEN = frozenset({"Ping", "GetScript"})
#: Most requests with the same contents that a process sends within a second.
SAME_MAX = 10

#: Names that are kept at most, before those of earlier seconds are forgotten.
_KEPT_MAX = 5_000


#: Most times that nodes are chosen for a reservation within a minute while no node changes.
REPLACED_MAX = 6


def note(world: World, what: str, most: int, seconds: float = 1.0) -> None:
    """Something happens. More than `most` times within so many seconds, it is a violation, which is reported once."""
    second, count = world.rates.get(what, (0, 0))
    now = int(world.now / seconds)
    count = count + 1 if second == now else 1
    if len(world.rates) > _KEPT_MAX:
        world.rates = {name: rate for name, rate in world.rates.items() if rate[0] == now}
    world.rates[what] = now, count
    if count == most + 1 and what not in world.too_often:
        world.too_often.add(what)
        world.violations.append(
            (RETRIES_PAUSE, world.now - EPOCH, f"{what}, more than {most} times within {seconds:g} s")
        )
        world.tell(f"VIOLATION {RETRIES_PAUSE}: {what}")
