"""What happens in a run, drawn from its seed before it begins: requests of users, and faults.

A plan is data, so it can be made shorter: a run that fails still fails without most of its actions (`shrink`).
"""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace


class Action(Struct, frozen=True, kw_only=True):
    """Something that a user, an operator or misfortune does at a time."""

    #: seconds after the beginning
    at: float
    #: a kind of `users.KINDS` or `faults.KINDS`
    kind: str
    #: whom it concerns: a user, a host, a unit
    target: str = ""
    #: details, by kind: numbers, words, and lists of these
    data: dict[str, Any] = field(default_factory=dict)


class Scale(Struct, frozen=True, kw_only=True):
    """How large a run is. The default is small: many short runs find more than few long ones."""

    nodes: int = 6
    jobs: int = 30
    #: seconds in which jobs are submitted and faults happen
    busy_seconds: float = 3600.0
    #: seconds after the last fault in which everything must come to its end
    quiet_seconds: float = 14_400.0
    #: faults on average
    faults: int = 12
    #: how often users do unusual things with their jobs, compared with a usual day
    unusual: float = 1.0
    #: kinds of these; empty: some of all, another selection in each run
    kinds: frozenset[str] = frozenset()
    #: instead of these, and of the requests that are drawn now and then: two of every kind that there is
    every_kind: bool = False
    #: what becomes of jobs in partition `low` if jobs in `high` want their nodes: REQUEUE, CANCEL, SUSPEND,GANG; ""
    #: nothing
    preemption: str = "REQUEUE"
    #: seconds that controllers remember jobs after their end
    remembered_seconds: int = 100_000
    #: licenses of the cluster
    licenses: dict[str, int] = field(default_factory=lambda: {"matlab": 4, "fluent": 2})
    #: further keys of slurm.conf, which replace those that every site has
    settings: dict[str, str] = field(default_factory=dict)
    #: lines of gres.conf before the GPUs of the nodes
    gres: str = ""
    #: the controller has much to do: most starts were planned by full passes, long before
    slow_passes: bool = False
    #: a calm hour follows (`after_hours`)
    after_hours: bool = False
    #: parts of the cluster that run: "accounting", "standby"
    parts: frozenset[str] = frozenset()


class Plan(Struct, frozen=True, kw_only=True):
    """All actions of one run, in the order of their times."""

    seed: int
    scale: Scale
    actions: tuple[Action, ...]


#: Parts of a cluster that a run can have or not (`Scale.parts`).
PARTS = frozenset({"accounting", "standby"})

#: Sizes of a run by name. `day` is the one of the reports; `every` has everything, for coverage. In a `storm` a fault
#: comes every half minute, so most of them come while the cluster recovers from others. `crowded`: few nodes, for which
#: jobs contend while one fault follows the other; `gang`: jobs take turns on them. `evening`: a
#: calm hour follows; not in `MIXED` while jobs are put off there in one run of ten.
SCALES = {
    "every": Scale(jobs=60, busy_seconds=7200.0, every_kind=True),
    "tiny": Scale(nodes=2, jobs=4, busy_seconds=300.0, quiet_seconds=900.0, faults=6),
    "small": Scale(),
    "storm": Scale(nodes=8, jobs=80, faults=120),
    "dense": Scale(jobs=20, faults=1000),
    "crowded": Scale(nodes=4, jobs=40, busy_seconds=1500.0, faults=30, unusual=2.5),
    "gang": Scale(nodes=4, jobs=40, busy_seconds=1500.0, unusual=2.5, preemption="SUSPEND,GANG"),
    "evening": Scale(nodes=4, jobs=20, busy_seconds=900.0, faults=6, after_hours=True),
    "day": Scale(nodes=20, jobs=200, busy_seconds=86_400.0, faults=120),
}

_FOR_EVER_SECONDS = 100_000

#: The default: every seed has a size of its own, so that what one size hides another one shows.
MIXED = "mixed"


def scale_of(name: str, seed: int, parts: frozenset[str] | None = None) -> Scale:
    """A scale by its name, `MIXED` too, with these parts instead of its own."""
    random = Random(f"{seed} scale")
    scale = _drawn(random) if name == MIXED else SCALES[name]
    scale = scale if parts is None else replace(scale, parts=parts)
    if name == MIXED and "accounting" in scale.parts:
        # Without accounting nothing would tell the checks what became of jobs that controllers have forgotten.
        scale = replace(scale, remembered_seconds=random.choice((_FOR_EVER_SECONDS, 20, 300)))
    return scale


def _drawn(random: Random) -> Scale:
    """A small run that differs from the others in how many jobs contend, how fast faults follow each other, what users
    do with their jobs, and how soon the controller forgets.
    """
    busy_seconds = random.choice((900.0, 1800.0, 3600.0))
    return Scale(
        nodes=random.choice((2, 3, 4, 6, 6, 8)),
        jobs=random.choice((20, 30, 40)),
        busy_seconds=busy_seconds,
        faults=random.choice((6, 12, 20, 40)),
        unusual=random.choice((0.7, 1.0, 2.0, 3.0)),
        preemption=random.choice(("REQUEUE", "REQUEUE", "CANCEL", "SUSPEND,GANG")),
        slow_passes=random.random() < 0.25,
    )
