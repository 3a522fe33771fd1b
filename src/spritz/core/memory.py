"""Data of the core outside of its state, in no image and no journal: a restarted daemon begins without it.

Decisions may change it, as nothing else of a State.
"""

from __future__ import annotations

from spritz.core.failures import Failures

#: What a decision is about at the moment: a job, or a part of a Tick (`reservation NAME`). 0: nothing in particular.
Subject = int | str


class Memory:
    """Work that decisions left for later ones, and what was seen go wrong."""

    __slots__ = ("accrual_freed", "failures", "lacking", "set_aside", "siblings_due")

    def __init__(self) -> None:
        #: the subjects of faults of the core, and the number of faults of each (`decide.set_aside`)
        self.set_aside: dict[Subject, int] = {}
        #: nodes that fail jobs at once (`decide.node.failing_nodes`)
        self.failures = Failures()
        #: for `decide.reservations.replenish`: reservations that lacked nodes when all nodes were last tried for them
        #: -> that time; None: unknown for all
        self.lacking: dict[str, float] | None = None
        #: whether a job that accrues age has made room for another (`decide.waiting.accrue`)
        self.accrual_freed = True
        #: federated jobs that `decide.siblings` has not looked at since they changed
        self.siblings_due: dict[int, None] = {}

    def ignores(self, subject: Subject) -> bool:
        """Whether the subject must not be looked at again: after its second fault."""
        return self.set_aside.get(subject, 0) > 1

    def copy(self) -> Memory:
        """A copy for a trial."""
        other = Memory()
        other.set_aside, other.failures = dict(self.set_aside), self.failures.copy()
        other.lacking = None if self.lacking is None else dict(self.lacking)
        other.accrual_freed, other.siblings_due = self.accrual_freed, dict(self.siblings_due)
        return other
