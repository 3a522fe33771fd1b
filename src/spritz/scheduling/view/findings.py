"""Findings of cycles that save work in later ones.

A cycle reads the `Memory` of its snapshot and writes `Findings` of its own, which it returns with the plan. The caller
of cycles passes them to `Projection.remember`. Events remove findings that they make wrong, so a plan is the same with
and without the memory (a property test compares the two).

They cannot be written straight into the projection: a cycle may run in a forked child, whose memory is not the
controller's, and its plan may be discarded, in which case its findings are about a cluster that never was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.plan import NoRoom, Plan
    from spritz.scheduling.view.nodes import NodeRow
    from spritz.scheduling.view.records import Failure, JobRecord, Shape, Verdict
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import NodeTable, ReadTable

#: answers cached: more different requests than a busy cluster sees in a while
ANSWERS_MAX = 4096

Key = TypeVar("Key")
Answer = TypeVar("Answer")
#: requests for which no victims were found, with the guarantees that had room for them
NoRoomKey = tuple["Request", tuple["Guarantee", ...]]
#: occurrences of reservations: name and start
Occurrences = tuple[tuple[str, float], ...]


class Memory:
    """Findings of earlier cycles that no event has invalidated. Findings about a shape are kept in the `Shape`.

    `planned`: (job, task) of the last plan's starts; if one of them did not happen, resources are free that failures
    did not count on. `up_version` counts changes of node states and weights.
    """

    __slots__ = ("_empty", "_ideal", "avoidable", "made", "no_room", "planned", "stuck", "up_version")

    def __init__(self) -> None:
        self.planned: list[tuple[int, int | None]] = []
        #: the last plan, and the ledger's version when that cycle ended
        self.made: tuple[Plan | None, int] = (None, 0)
        self.up_version = 0
        self._empty: NodeTable | None = None
        self._ideal: NodeTable | None = None
        #: whether the request could avoid these occurrences of reservations on the empty table
        self.avoidable: dict[Occurrences, dict[Request, bool]] = {}
        #: why a request without its times could not start on the empty table (None: it can)
        self.stuck: dict[Request, Verdict | None] = {}
        self.no_room: dict[NoRoomKey, NoRoom] = {}

    def empty_table(self, table: ReadTable) -> NodeTable:
        """The nodes without any job, up or down as they are now."""
        if self._empty is None:
            self._empty = table.emptied()
        return self._empty

    def ideal_table(self, table: ReadTable) -> NodeTable:
        """The nodes without any job, all of them up."""
        if self._ideal is None:
            self._ideal = table.emptied(all_up=True)
        return self._ideal

    def put_no_room(self, request: Request, no_room: NoRoom) -> None:
        """Record that no victims were found for jobs of the request."""
        _add(self.no_room, {(request, no_room.guarantees): no_room})

    def add(self, findings: Findings) -> None:
        """Add the findings of a cycle."""
        self.planned, self.made = findings.planned, findings.made
        for which, answers in findings.avoidable.items():
            self.avoidable.setdefault(which, {}).update(answers)
        _add(self.stuck, findings.stuck_requests)
        _add(self.no_room, findings.no_room)

    def forget_up(self, row: NodeRow) -> None:
        """A node went up or down, or has another weight; `row` is its present row."""
        if self._empty is not None:
            self._empty.follow(row)
        self.avoidable.clear()
        self.stuck.clear()
        self.up_version += 1


class Findings:
    """Findings of one cycle, on top of the memory that it reads."""

    __slots__ = (
        "_memory",
        "avoidable",
        "failures",
        "forgotten",
        "made",
        "no_room",
        "planned",
        "predicted",
        "renewed",
        "settled",
        "stuck",
        "stuck_requests",
        "verdicts",
    )

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        #: failures from before this cycle do not count
        self.forgotten = False
        self.failures: dict[Shape, Failure | None] = {}
        #: shapes left out in this cycle that still fail, by value of `partition_freed`
        self.renewed: dict[int, list[Shape]] = {}
        #: new values of `Shape.verdict` and `Shape.stuck`, and of `JobRecord.predicted`
        self.verdicts: dict[Shape, Verdict] = {}
        self.stuck: dict[Shape, tuple[int, Verdict | None]] = {}
        self.predicted: dict[JobRecord, tuple[int, float]] = {}
        #: jobs whose reasons were found to be right
        self.settled: list[JobRecord] = []
        # the other fields as in `Memory`
        self.stuck_requests: dict[Request, Verdict | None] = {}
        self.avoidable: dict[Occurrences, dict[Request, bool]] = {}
        self.no_room: dict[NoRoomKey, NoRoom] = {}
        self.planned: list[tuple[int, int | None]] = []
        self.made: tuple[Plan | None, int] = (None, 0)

    def failure(self, shape: Shape) -> Failure | None:
        """The last failure of the shape that is still valid."""
        return self.failures.get(shape, None if self.forgotten else shape.failure)

    def stuck_at(self, shape: Shape) -> tuple[int, Verdict | None] | None:
        """`Shape.stuck` as this cycle knows it."""
        return self.stuck.get(shape, shape.stuck)

    def known_stuck(self, fit: Request) -> bool:
        """Whether there is an answer for this request without its times."""
        return fit in self.stuck_requests or fit in self._memory.stuck

    def stuck_request(self, fit: Request) -> Verdict | None:
        """The answer; `known_stuck` must be true."""
        return self.stuck_requests[fit] if fit in self.stuck_requests else self._memory.stuck[fit]

    def is_avoidable(self, which: Occurrences, request: Request) -> bool | None:
        """Whether the request could avoid these occurrences. None: not known."""
        avoidable = self.avoidable.get(which, _NONE).get(request)
        return self._memory.avoidable.get(which, _NONE).get(request) if avoidable is None else avoidable

    def no_room_for(self, request: Request, guarantees: tuple[Guarantee, ...]) -> NoRoom | None:
        """The last search for victims that failed, if there was one."""
        key = request, guarantees
        return self.no_room.get(key) or self._memory.no_room.get(key)


_NONE: Mapping[Request, bool] = {}


def _add(cache: dict[Key, Answer], new: Mapping[Key, Answer]) -> None:
    """Add to a cache, which is emptied when it is full."""
    if len(cache) + len(new) > ANSWERS_MAX:
        cache.clear()
    cache.update(new)
