"""What can go wrong with slurmdbd, its database and its host, as calls for an injector.

Each kind of `KINDS` has a function that draws the details of one fault from the seed, and one that makes it happen. The
second returns the seconds after which the fault is over. Cut networks and changed clocks of other hosts are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from spritz_testing.daemons.accounting.database import POINTS

if TYPE_CHECKING:
    from spritz_testing.daemons.accounting.daemon import Accounting

Data = dict[str, Any]

#: Seconds that a service manager and a daemon need for a new start.
_START_SECONDS = 10.0

_FULL = "database or disk is full"
_BROKEN = "disk I/O error"
_READ_ONLY = "attempt to write a readonly database"


def kill(accounting: Accounting, data: Data) -> float:
    """SIGKILL: now, or at the `count`-th `point` of the database (`database.POINTS`)."""
    point = data.get("point", "")
    if point:
        accounting.database.when(point, data.get("count", 1), accounting.unit.kill)
    else:
        accounting.unit.kill()
    return _START_SECONDS


def terminate(accounting: Accounting, data: Data) -> float:
    """SIGTERM; the service is started again after `seconds`."""
    accounting.unit.stop()
    accounting.world.after(data["seconds"], accounting.unit.start)
    return float(data["seconds"]) + _START_SECONDS


def stop(accounting: Accounting, data: Data) -> float:
    """SIGSTOP, and SIGCONT after `seconds`."""
    process = accounting.unit.process
    if process is not None and process.is_alive:
        process.stop()
        accounting.world.after(data["seconds"], process.go_on)
    return float(data["seconds"])


def cut_power(accounting: Accounting, data: Data) -> float:
    """The host is off for `seconds`. Commits that SQLite had not synced may be lost."""
    host = accounting.host
    if not host.is_up:
        return 0.0
    host.lose_power()

    def boot() -> None:
        host.boot()
        accounting.unit.start()

    accounting.world.after(data["seconds"], boot)
    return float(data["seconds"]) + _START_SECONDS


def fill_disk(accounting: Accounting, data: Data) -> float:
    accounting.database.fail(_FULL, data["seconds"])
    return float(data["seconds"])


def fill_disk_nearly(accounting: Accounting, data: Data) -> float:
    """There is no space for new rows: a controller can register, and nothing of what it sends can be stored."""
    accounting.database.fail(_FULL, data["seconds"], grows=True)
    return float(data["seconds"])


def break_disk(accounting: Accounting, data: Data) -> float:
    """Reads fail, too."""
    accounting.database.fail(_BROKEN, data["seconds"], reads=True)
    return float(data["seconds"])


def make_read_only(accounting: Accounting, data: Data) -> float:
    accounting.database.fail(_READ_ONLY, data["seconds"])
    return float(data["seconds"])


def slow_database(accounting: Accounting, data: Data) -> float:
    """Each statement takes up to `by` seconds more."""
    accounting.database.slow(data["by"], data["seconds"])
    return float(data["seconds"])


def lose_acknowledgements(accounting: Accounting, data: Data) -> float:
    """The next `count` commits are carried out and reported as failed."""
    accounting.database.lose_acknowledgement(data["count"])
    return 0.0


def back_up(accounting: Accounting, data: Data) -> float:
    """No fault: keep a copy for `set_back`."""
    accounting.backup = accounting.database.copy()
    return 0.0


def set_back(accounting: Accounting, data: Data) -> float:
    """Kill slurmdbd, put the last backup in place of the database, and start slurmdbd. Nothing without a backup."""
    if accounting.backup is None or not accounting.host.is_up:
        return 0.0
    unit = accounting.unit
    unit.is_wanted = False
    unit.kill()
    accounting.database.restore(accounting.backup)
    accounting.world.after(data["seconds"], unit.start)
    return float(data["seconds"]) + _START_SECONDS


def set_clock(accounting: Accounting, data: Data) -> float:
    """The host's clock is `ahead` seconds ahead (behind, if negative), and set right after `seconds`."""
    accounting.host.set_clock(data["ahead"])
    accounting.world.after(data["seconds"], lambda: accounting.host.set_clock(0.0))
    return float(data["seconds"])


class Kind(NamedTuple):
    """A kind of fault."""

    draw: Callable[[Random], Data]
    act: Callable[[Accounting, Data], float]


def _nothing(random: Random) -> Data:
    return {}


def _seconds(low: float, high: float) -> Callable[[Random], Data]:
    return lambda random: {"seconds": round(random.uniform(low, high), 3)}


def _point(random: Random) -> Data:
    point = random.choice(("", *POINTS))
    return {"point": point, "count": random.randint(1, 12 if point == "statement" else 3)} if point else {}


def _clock(random: Random) -> Data:
    ahead = random.choice((-1, 1)) * random.choice((1.5, 40.0, 700.0, 7200.0, 90_000.0)) * random.random()
    return {"ahead": round(ahead, 3), "seconds": round(random.uniform(1.0, 1800.0), 3)}


KINDS: dict[str, Kind] = {
    "slurmdbd killed": Kind(_point, kill),
    "slurmdbd restarted": Kind(_seconds(0.0, 120.0), terminate),
    "slurmdbd stopped": Kind(_seconds(0.1, 400.0), stop),
    "slurmdbd without power": Kind(_seconds(1.0, 300.0), cut_power),
    "accounts full": Kind(_seconds(1.0, 300.0), fill_disk),
    "accounts nearly full": Kind(_seconds(1.0, 300.0), fill_disk_nearly),
    "accounts broken": Kind(_seconds(1.0, 120.0), break_disk),
    "accounts read-only": Kind(_seconds(1.0, 120.0), make_read_only),
    "accounts slow": Kind(
        lambda random: {"by": random.choice((0.05, 0.5, 5.0)), **_seconds(1, 120)(random)}, slow_database
    ),
    "accounts acknowledgement lost": Kind(lambda random: {"count": random.randint(1, 3)}, lose_acknowledgements),
    "accounts backed up": Kind(_nothing, back_up),
    "accounts set back": Kind(_seconds(0.0, 60.0), set_back),
    "slurmdbd clock": Kind(_clock, set_clock),
}


def inject(accounting: Accounting, kind: str, data: Data) -> float:
    """Let it happen now, with a line in the story. Returns the seconds after which it is over."""
    accounting.world.tell(f"fault: {kind} {data}")
    accounting.world.count(f"fault {kind}")
    return KINDS[kind].act(accounting, data)
