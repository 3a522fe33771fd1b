"""Limits of associations and QOS in one cycle: what running jobs use, and what this cycle has started in addition.

Uses the same ledger and the same checks as the core (`model.limits`), so that the core accepts what is planned here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.check import exceeded
from spritz.model.limits.minutes import out_of_minutes
from spritz.model.limits.reasons import first_of
from spritz.model.reasons import Reason
from spritz.model.rules.job_tres import allocated_pairs, wanted_pairs
from spritz.scheduling.view.charges import charge_of, count_charge, guaranteed_pairs
from spritz.scheduling.view.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.records import Charge, JobRecord, Shape
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot


class Limits:
    """The remainder of each limit during one cycle."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._rules = snapshot.rules
        #: resources used by running jobs and by jobs that this cycle starts
        self.in_use = snapshot.in_use.fork()
        #: jobs that this cycle starts: latest end, charge, UsageFactor
        self.starting: list[tuple[float, Charge, float]] = []
        self.minutes = snapshot.minutes.fork()
        self._inputs = snapshot.pricing.inputs
        self.now = snapshot.now
        self._eligibility = snapshot.eligibility
        self.safe = "safe" in snapshot.settings.enforce

    def fork(self) -> Limits:
        """A copy in which to try starts."""
        other = Limits.__new__(Limits)
        other._rules, other.in_use, other.minutes = self._rules, self.in_use.fork(), self.minutes.fork()
        other.starting = []
        other._inputs, other.now, other.safe = self._inputs, self.now, self.safe
        other._eligibility = self._eligibility
        return other

    def verdict(self, record: JobRecord, request: Request, allocation: Allocation | None = None) -> Verdict | None:
        """The limit that holds the job back, for its request or, if given, for its allocation."""
        if request.billed is None:
            return None
        account, user, qos, exempt = request.billed
        job_limits = self._rules.job_limits(account, user, request.partition, qos, exempt)
        if allocation is None:
            pairs = wanted_pairs(record.spec, memory_consumable=request.memory_counts, sure=True)
            nodes = request.nodes_min
        else:
            pairs, nodes = allocated_pairs(allocation), len(allocation.nodes)
        priced = self._rules.priced(request.partition, pairs)
        minutes, on = request.time_limit_minutes, allocation.names if allocation is not None else None
        held = exceeded(job_limits, self.in_use, priced, minutes, nodes=nodes, on=on, unplaced=on is None)
        if job_limits.timed:
            used_up = out_of_minutes(job_limits, self.minutes, dict(priced), minutes, self.now, safe=self.safe)
            held = first_of((held, used_up))
        if held is not None:
            return Verdict(held.reason)
        if job_limits.threshold is not None:
            factor = self._inputs.fair_share(account, user, request.partition)
            return Verdict(Reason.QOS_USAGE_THRESHOLD) if factor < job_limits.threshold else None
        return None

    def open_guarantees(
        self, record: JobRecord, partition: str, pairs: Iterable[tuple[str, int]]
    ) -> tuple[Guarantee, ...]:
        """Guarantees of the job's account and the accounts above it that have room for `pairs` more; nearest first."""
        spec = record.spec
        guarantees = self._rules.job_limits(spec.account, spec.user, partition, spec.qos).guarantees
        requested = dict(pairs) if guarantees else {}
        return tuple(
            guarantee
            for guarantee in guarantees
            if guarantee.has_room(self.in_use.use(("a", guarantee.id)).tres, requested)
        )

    def within_guarantees(self, record: JobRecord, request: Request) -> tuple[Guarantee, ...]:
        """Guarantees with room for what the waiting job would hold."""
        if not request.guaranteed:
            return ()
        return self.open_guarantees(
            record, request.partition, guaranteed_pairs(self._eligibility, record.spec, request)
        )

    def within(self, shape: Shape) -> bool:
        """Whether the first job of the shape stays within the guarantee of its account."""
        return bool(self.within_guarantees(shape.jobs[shape.keys[0]], shape.request))

    def take(self, record: JobRecord, allocation: Allocation, minutes: int) -> None:
        """Charge a job that starts now and lasts at most `minutes`."""
        if self._rules.known:
            charge, factor = charge_of(self._rules, record, allocation), self._rules.usage_factor(record.spec.qos)
            count_charge(self.in_use, charge)
            self.starting.append((self.now + minutes * 60.0, charge, factor))
            if self._rules.foresees:
                self.minutes.committed.add(charge.keys, charge.tres, self.now + minutes * 60.0, factor)
