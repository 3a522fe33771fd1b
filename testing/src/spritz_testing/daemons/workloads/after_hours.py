"""A calm hour after the day: nothing but submissions, and readings of planned starts, which therefore must be kept.

During the day nearly every planned start has an excuse to move: a node fails, a job is released or suspended, a
controller restarts. Here none has. Nodes are freed one by one: by jobs that end early, just before their time limit, or
after it; large jobs wait for several of them, and small ones, which come later, would fit beside these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from spritz_testing.daemons.plan import Action
from spritz_testing.daemons.workloads.workload import ACCOUNTS_OF, PEOPLE, NewJob, script_of

if TYPE_CHECKING:
    from random import Random

    from spritz_testing.daemons.plan import Scale

#: Seconds after the day: administrators have resumed drained nodes, and most of the day's jobs have ended.
_BEGINS_SECONDS = 600.0, 900.0

#: Seconds in which users look at planned starts, and from one look to the next.
_LOOKED_AT_SECONDS = 700.0
_LOOK_SECONDS = 10.0, 50.0


def draw(random: Random, scale: Scale) -> list[Action]:
    """Nothing, unless the scale says so."""
    return _Evening(random, scale).draw() if scale.after_hours else []


class _Evening:
    def __init__(self, random: Random, scale: Scale) -> None:
        self.random = random
        self.scale = scale
        self.at = scale.busy_seconds + random.uniform(*_BEGINS_SECONDS)
        #: some jobs run into their time limits
        self.overrun = random.random() < 0.3
        self.actions: list[Action] = []

    def draw(self) -> list[Action]:
        random = self.random
        began = self.at
        # Freed shortly one after the other: between two full passes the next job starts, and a further node is free.
        in_a_row = random.random() < 0.5
        for _ in range(self.scale.nodes):
            self._submit(
                2 if in_a_row else random.choice((2, 3, 4, 6, 8)), 1, 8 if in_a_row else random.choice((6, 8, 8))
            )
            self.at += random.uniform(2.0, 20.0) if in_a_row else self._some(0.05, 20.0)
        nodes = random.randint(min(2, self.scale.nodes), min(4, self.scale.nodes))
        minutes, cpus = random.choice((1, 2, 3, 5)), random.choice((6, 8, 8))
        for _ in range(random.randint(1, 4)):  # equal requests
            self._submit(minutes, nodes, cpus)
            self.at += self._some(0.01, 4.0)
        for _ in range(random.randint(5, 10)):
            self._submit(random.choice((2, 5, 10, 15)), random.choice((1, 1, 1, 2)), random.choice((2, 4, 8)))
            self.at += self._some(0.1, 60.0)
        until, at = began + _LOOKED_AT_SECONDS, began
        if random.random() < 0.5:  # whatever a job that waits leaves for a moment is taken from it
            while self.at < until:
                self._submit(random.choice((10, 15)), 1, random.choice((2, 4, 8)))
                self.at += random.uniform(3.0, 30.0)
        while at < until:
            self._act(at, "expected_starts", random.choice(PEOPLE))
            at += random.uniform(*_LOOK_SECONDS)
        return sorted(self.actions, key=lambda action: action.at)

    def _submit(self, minutes: int, nodes: int, cpus: int) -> None:
        random, user, tag = self.random, self.random.choice(PEOPLE), f"e{len(self.actions)}"
        limit = minutes * 60.0
        long = 2 * limit if self.overrun else limit - self._some(0.2, 5.0)
        seconds = random.choice((limit * random.uniform(0.1, 0.9), limit - self._some(0.2, 5.0), long))
        stays = self.overrun and random.random() < 0.3
        wanted = NewJob(
            tag=tag,
            script=script_of(tag, round(seconds, 3), ignores_term=stays),
            environment=(f"SIM_TAG={tag}",),
            partition="main",
            account=ACCOUNTS_OF[user][0] if "accounting" in self.scale.parts else "",
            qos="normal" if "accounting" in self.scale.parts else "",
            nodes_min=min(nodes, self.scale.nodes),
            tasks=min(nodes, self.scale.nodes),
            cpus_per_task=cpus,
            seconds=round(seconds, 3),
            ignores_term=stays,
            time_limit_minutes=minutes,
        )
        self._act(self.at, "submit", user, wanted=msgspec.to_builtins(wanted))

    def _act(self, at: float, kind: str, user: str, **data: Any) -> None:
        self.actions.append(Action(at=round(at, 6), kind=kind, target=user, data=data))

    def _some(self, low: float, high: float) -> float:
        """Seconds between the two, whose logarithm is spread evenly."""
        return float(low * (high / low) ** self.random.random())
