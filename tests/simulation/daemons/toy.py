"""A sequential toy controller on four nodes: its histories are correct by construction, and say much.

One thing happens a second: a request, a start, an end, a lost node, a reading. Some answers are lost, after or before
the request was carried out. In the end everything runs to its end.
"""

from __future__ import annotations

from random import Random
from typing import Any

from spritz.model.job.record import Hold
from spritz.model.states import JobState
from spritz_testing.daemons.history import Outcome
from spritz_testing.daemons.wanted import Condition, Wanted
from tests.simulation.daemons.day import Day

NODES = ("n1", "n2", "n3", "n4")
CPUS = 2
LICENCES = 2


class Toy:
    """The cluster and its users, from a seed."""

    def __init__(self, seed: int, seconds: int = 150) -> None:
        self.random = Random(seed)
        self.day = Day(licenses={"a": LICENCES}, order_seconds=2.0, recovery_seconds=5.0)
        self.wanted: dict[int, Wanted] = {}
        #: node and CPU of each running job, and when it ends
        self.places: dict[int, tuple[str, int]] = {}
        self.ends: dict[int, int] = {}
        #: jobs and conditions of theirs that were satisfied once, and so are for good
        self.fulfilled: set[tuple[int, Condition]] = set()
        self.now = 0
        for self.now in range(10, 10 + seconds):
            self._act()
        for job_id in self.wanted:  # nothing stays held
            if self.day.jobs[job_id].hold is not Hold.NONE:
                self.now += 1
                self._request("release", job_id, lost=False)
        while self._busy():
            self.now += 1
            self._start()
            self._end()

    def _busy(self) -> bool:
        return any(not self.day.jobs[job_id].state.ended and not self._hopeless(job_id) for job_id in self.wanted)

    def _hopeless(self, job_id: int) -> bool:
        for item in self.wanted[job_id].dependencies:
            if (job_id, item) in self.fulfilled:
                continue
            other = self.day.jobs[item.job_id]
            if other.state.ended and (other.state is JobState.COMPLETED) is (item.kind == "afternotok"):
                return item.kind != "afterany"
            if not other.state.ended and self._hopeless(other.id):
                return True
        return False

    def _act(self) -> None:
        draw = self.random.random()
        if draw < 0.25 or not self.wanted:
            self._submit()
        elif draw < 0.5:
            kinds = ("cancel", "hold", "release", "requeue", "hold", "release")
            self._request(self.random.choice(kinds), self.random.choice(list(self.wanted)))
        elif draw < 0.65:
            self._read()
        elif draw < 0.68:
            self._lose_node()
        elif draw < 0.9:
            self._start()
        self._end()

    def _submit(self) -> None:
        random = self.random
        others = list(self.wanted)
        kind = random.choice(["afterok", "afterany", "afternotok"])
        conditions = (Condition(kind=kind, job_id=random.choice(others)),) if others and random.random() < 0.3 else ()
        outcome = Outcome.UNKNOWN if random.random() < 0.1 else Outcome.DONE
        asked: dict[str, Any] = {
            "hold": random.random() < 0.2,
            "licenses": "a" if random.random() < 0.3 else "",
            "dependencies": conditions,
            "begin_at": float(self.now + 20) if random.random() < 0.1 else 0.0,
        }
        job_id = self.day.submit(self.now, outcome=outcome, **asked)
        self.wanted[job_id] = Wanted(tag="", **asked)
        if asked["hold"]:
            self.day.record(job_id, hold=Hold.USER)

    def _request(self, kind: str, job_id: int, *, lost: bool | None = None) -> None:
        job = self.day.jobs[job_id]
        refused = job.state is JobState.PENDING if kind == "requeue" else job.state.ended
        lost = self.random.random() < 0.15 if lost is None else lost
        outcome = Outcome.UNKNOWN if lost else Outcome.REFUSED if refused else Outcome.DONE
        code = "ESLURM_JOB_PENDING" if kind == "requeue" else "ESLURM_JOB_FINISHED"
        self.day.request(kind, job_id, self.now, outcome=outcome, answer=code if outcome is Outcome.REFUSED else None)
        if refused or (lost and self.random.random() < 0.5):
            return
        if kind in ("hold", "release"):
            self.day.record(job_id, hold=Hold.USER if kind == "hold" else Hold.NONE)
        elif kind == "cancel":
            started_at = job.started_at or self.now  # as slurmctld reports it
            self.day.record(job_id, state=JobState.CANCELLED, started_at=started_at, ended_at=float(self.now))
            self._leave(job_id)
        else:
            state = job.state.value if job.state.ended else "CANCELLED"
            self._leave(job_id)
            self.day.queue_again(job_id, self.now, state)

    def _leave(self, job_id: int) -> None:
        """The processes of a job that was cancelled or queued again end at once."""
        if job_id in self.places:
            self.day.end(job_id, self.now + 0.5, self.places.pop(job_id)[0], signal=15)

    def _read(self) -> None:
        rows = []
        for job_id in self.wanted:
            job = self.day.jobs[job_id]
            reason = "JobHeldUser" if job.hold is not Hold.NONE and job.state is JobState.PENDING else "None"
            if not job.state.ended:
                rows.append((job_id, job.state.value, reason))
        self.day.read(self.now, *rows)

    def _lose_node(self) -> None:
        node = self.random.choice(NODES)
        self.day.boot(self.now, node)
        for job_id, (place, _cpu) in list(self.places.items()):
            if place == node:
                del self.places[job_id]
                self.day.queue_again(job_id, self.now)

    def _start(self) -> None:
        for job_id, wanted in self.wanted.items():
            if not self._may_start(job_id, wanted):
                continue
            free = [(node, cpu) for node in NODES for cpu in range(CPUS) if (node, cpu) not in self.places.values()]
            if free:
                node, cpu = self.places[job_id] = self.random.choice(free)
                self.ends[job_id] = self.now + self.random.randint(1, 20)
                self.day.begin(job_id, self.now + 0.6, node, cpus={cpu})
            return

    def _may_start(self, job_id: int, wanted: Wanted) -> bool:
        job = self.day.jobs[job_id]
        used = sum(self.wanted[other].licenses == "a" for other in self.places)
        return (
            job.state is JobState.PENDING
            and job.hold is Hold.NONE
            and wanted.begin_at <= self.now
            and (not wanted.licenses or used < LICENCES)
            and (job.restart_count > 0 or all((job_id, item) in self.fulfilled for item in wanted.dependencies))
        )

    def _satisfied(self, item: Condition) -> bool:
        other = self.day.jobs[item.job_id]
        if not other.state.ended:
            return False
        return item.kind == "afterany" or (other.state is JobState.COMPLETED) is (item.kind == "afterok")

    def _end(self) -> None:
        for job_id, (node, _cpu) in list(self.places.items()):
            if self.ends[job_id] <= self.now:
                del self.places[job_id]
                code = 1 if self.random.random() < 0.2 else 0
                self.day.end(job_id, self.now + 0.7, node, exit_code=code)
        for job_id, wanted in self.wanted.items():
            if self.day.jobs[job_id].state is JobState.PENDING:
                self.fulfilled |= {(job_id, item) for item in wanted.dependencies if self._satisfied(item)}
