"""Filters and orders of jobs.

A filter consists of words that must all match: `alice`, `user:alice`, `state:pd`, `part:gpu`, `name:train`,
`account:ml`, `node:n1`, `reason:prio`; `-word` excludes jobs. A plain word matches in the id, name, user, account,
partition, state and reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.live.jobs import Job

_KEYS: dict[str, Callable[[Job], str]] = {
    "id": lambda job: job.label,
    "user": lambda job: job.user,
    "account": lambda job: job.account,
    "name": lambda job: job.name,
    "part": lambda job: job.partition or ",".join(job.partitions),
    "qos": lambda job: job.qos,
    "reason": lambda job: job.why,
    "node": lambda job: " ".join(job.node_names),
}
_ANY = ("id", "name", "user", "account", "part", "reason")
_ALIASES = {"partition": "part", "u": "user", "p": "part", "n": "name", "a": "account", "s": "state", "nodes": "node"}

#: States in the order of the queue.
_RANK = {"RUNNING": 0, "COMPLETING": 0, "SUSPENDED": 1, "PENDING": 2}

#: Name of an order -> sort key; the smallest comes first.
ORDERS: dict[str, Callable[[Job, float], tuple[object, ...]]] = {
    "queue": lambda job, now: (_RANK.get(job.state_name, 3), *_within(job)),
    "id": lambda job, now: (job.array_job_id or job.id, job.array_task_id or 0, job.id),
    "user": lambda job, now: (job.user, -job.id),
    "name": lambda job, now: (job.name, -job.id),
    "state": lambda job, now: (job.state_name, -job.id),
    "part": lambda job, now: (job.partition or ",".join(job.partitions), -job.id),
    "time": lambda job, now: (-job.used_seconds(now), -job.id),
    "left": lambda job, now: (left if (left := job.left_seconds(now)) is not None else 1 << 40, job.id),
    "nodes": lambda job, now: (-job.node_count, -job.id),
    "gpus": lambda job, now: (-job.gpu_count, -job.id),
    "cpus": lambda job, now: (-job.cpu_count, -job.id),
    "prio": lambda job, now: (-job.priority, job.id),
}


def _within(job: Job) -> tuple[object, ...]:
    if job.state == "PENDING":
        return (-job.priority, job.id)
    if job.ended_at:
        return (-job.ended_at, job.id)
    return (-job.started_at, job.id)


class Choice:
    """A filter. `ended`: include ended jobs. Raises ValueError for an unknown key."""

    def __init__(self, text: str = "", *, ended: bool = False) -> None:
        self.text = text
        self.ended = ended
        self._tests: list[Callable[[Job], bool]] = []
        for word in text.split():
            must_match = not word.startswith("-")
            self._tests.append(_test(word.removeprefix("-").lower(), must_match))

    def takes(self, job: Job) -> bool:
        return (self.ended or job.is_active) and all(test(job) for test in self._tests)


def _test(word: str, must_match: bool) -> Callable[[Job], bool]:
    key, colon, value = word.partition(":")
    if colon:
        key = _ALIASES.get(key, key)
        if key == "state":
            return lambda job: (
                (job.state_name.lower().startswith(value) or job.state_code.lower() == value) is must_match
            )
        if key not in _KEYS:
            raise ValueError(f"{key}: {', '.join((*_KEYS, 'state'))} are known")
        of = _KEYS[key]
        if key in ("user", "account", "qos"):
            return lambda job: (of(job).lower() in value.split(",")) is must_match
        return lambda job: (value in of(job).lower()) is must_match
    readers = [_KEYS[name] for name in _ANY]
    return lambda job: (word in job.state_name.lower() or any(word in of(job).lower() for of in readers)) is must_match


def chosen(jobs: Iterable[Job], choice: Choice, order: str, now: float, *, backwards: bool = False) -> list[Job]:
    """The matching jobs in the order named `order`. `now`: seconds since the epoch, for orders by time."""
    key = ORDERS[order]
    return sorted(filter(choice.takes, jobs), key=lambda job: key(job, now), reverse=backwards)
