"""Limits of associations and QOS in one cycle: what running jobs use, and what this cycle has started on top.

The same ledger and the same questions as the core's (`model.limits`), so that what is planned here is accepted there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spritz.model.job_tres import allocated_pairs, wanted_pairs
from spritz.model.limits.check import exceeded
from spritz.model.limits.minutes import Minutes, out_of_minutes
from spritz.model.limits.reasons import first_of
from spritz.model.limits.usage import rates_of
from spritz.model.reasons import Reason
from spritz.model.rules.whole_nodes import with_whole_nodes
from spritz.scheduling.minutes_ahead import MinutesAhead
from spritz.scheduling.records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.job import JobSpec
    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.limits.ledger import Key, Ledger
    from spritz.model.limits.rules import Rules
    from spritz.model.resources import Allocation
    from spritz.scheduling.records import JobRecord, Shape
    from spritz.scheduling.request import Billed, Request
    from spritz.scheduling.snapshot import Snapshot


class Charge(NamedTuple):
    """Where a running job counts, and what; `nodes`: where it runs, where a limit asks for it."""

    keys: tuple[Key, ...]
    tres: tuple[tuple[str, int], ...]
    nodes: tuple[str, ...] = ()


def count_in(ledger: Ledger, charge: Charge, sign: int = 1) -> None:
    """A running job's share, or (-1) it is one no longer."""
    ledger.add(charge.keys, jobs=1, tres=charge.tres, nodes=charge.nodes, sign=sign)


def charge_of(rules: Rules, record: JobRecord, allocation: Allocation) -> Charge:
    """What a job counts that holds this."""
    spec = record.spec
    keys = rules.party(spec.account, spec.user, allocation.partition, spec.qos).keys
    licenses = tuple((f"license/{name}", count) for name, count in record.licenses.items())
    tres = tuple(rules.priced(allocation.partition, (*allocated_pairs(allocation), *licenses)))
    return Charge(keys, tres, allocation.names if rules.shares_nodes else ())


def billed(rules: Rules, spec: JobSpec, partition: str, enforce: tuple[str, ...]) -> Billed | None:
    """Whose it is, if any limit bounds them; jobs of several such parties are no longer alike."""
    if "limits" not in enforce or not rules.party(spec.account, spec.user, partition, spec.qos).bounded:
        return None
    return spec.account, spec.user, spec.qos, spec.exempt


def least_priority(rules: Rules, request: Request) -> int:
    """MinPrioThreshold of whose job it is: with less it is promised no start."""
    if request.billed is None:
        return 0
    account, user, qos, exempt = request.billed
    return rules.party(account, user, request.partition, qos, exempt).min_priority


def wanted_by(spec: JobSpec, request: Request) -> list[tuple[str, int]]:
    """What the job will hold, as far as that is known."""
    return wanted_pairs(spec, memory_consumable=request.memory_counts)


def guaranteed_pairs(snapshot: Snapshot, spec: JobSpec, request: Request) -> list[tuple[str, int]]:
    """What the job will hold, as guarantees count it: of whole nodes all that they have."""
    pairs = wanted_by(spec, request)
    if not request.whole:
        return pairs
    known = snapshot.memo.whole
    if request not in known:
        rows, nodes = snapshot.table.rows, snapshot.eligibility.nodes(request).tolist()
        kinds = {id(rows[index].hardware): rows[index].hardware.capacity for index in nodes}
        known[request] = tuple(kinds.values())
    return with_whole_nodes(pairs, known[request], request.nodes_min)


class Limits:
    """What is left under each limit while one cycle goes on."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._rules = snapshot.rules
        #: of those that run, and that this cycle has started
        self.in_use = snapshot.in_use.fork()
        #: the latter: when they end at the latest, what they count, and their UsageFactor
        self.starting: list[tuple[float, Charge, float]] = []
        self._minutes = snapshot.minutes.fork()
        self._inputs = snapshot.pricing.inputs
        self._now = snapshot.now
        self._snapshot = snapshot
        self._safe = "safe" in snapshot.settings.enforce

    def fork(self) -> Limits:
        """To try starts in."""
        other = Limits.__new__(Limits)
        other._rules, other.in_use, other._minutes = self._rules, self.in_use.fork(), self._minutes.fork()
        other.starting = []
        other._inputs, other._now, other._safe = self._inputs, self._now, self._safe
        other._snapshot = self._snapshot
        return other

    def minutes_ahead(self) -> MinutesAhead:
        """Limits on minutes after this cycle's starts, as time goes on."""
        minutes = Minutes(self._minutes.usage.copy(), self._minutes.committed.fork())
        for _ends_at, charge, factor in self.starting:
            minutes.usage.change(charge.keys, rates_of(charge.tres, 0.0, factor), 1, self._now)
        return MinutesAhead(minutes, safe=self._safe)

    def verdict(self, record: JobRecord, request: Request, allocation: Allocation | None = None) -> Verdict | None:
        """The limit that holds the job back, with what it asks for or with what it would be given."""
        if request.billed is None:
            return None
        account, user, qos, exempt = request.billed
        party = self._rules.party(account, user, request.partition, qos, exempt)
        if allocation is None:
            pairs = wanted_pairs(record.spec, memory_consumable=request.memory_counts, sure=True)
            nodes = request.nodes_min
        else:
            pairs, nodes = allocated_pairs(allocation), len(allocation.nodes)
        priced = self._rules.priced(request.partition, pairs)
        minutes, on = request.time_limit_minutes, allocation.names if allocation is not None else None
        held = exceeded(party, self.in_use, priced, minutes, nodes=nodes, on=on, unplaced=on is None)
        if party.timed:
            used_up = out_of_minutes(party, self._minutes, dict(priced), minutes, self._now, safe=self._safe)
            held = first_of((held, used_up))
        if held is not None:
            return Verdict(held.reason)
        if party.threshold is not None:
            factor = self._inputs.fair_share(account, user, request.partition)
            return Verdict(Reason.QOS_USAGE_THRESHOLD) if factor < party.threshold else None
        return None

    def roomy(self, record: JobRecord, partition: str, pairs: Iterable[tuple[str, int]]) -> tuple[Guarantee, ...]:
        """Guarantees of the job's account, and of those above, that have room for so much more; nearest first."""
        spec = record.spec
        own = self._rules.party(spec.account, spec.user, partition, spec.qos).guarantees
        wanted = dict(pairs) if own else {}
        return tuple(one for one in own if one.has_room(self.in_use.use(("a", one.id)).tres, wanted))

    def within_guarantees(self, record: JobRecord, request: Request) -> tuple[Guarantee, ...]:
        """Guarantees with room for what the waiting job will hold."""
        if not request.guaranteed:
            return ()
        return self.roomy(record, request.partition, guaranteed_pairs(self._snapshot, record.spec, request))

    def within(self, shape: Shape) -> bool:
        """Would the first job of the shape take no more than its account is guaranteed?"""
        request = shape.request
        record = shape.jobs[shape.keys[0]]
        return bool(self.within_guarantees(record, request))

    def take(self, record: JobRecord, allocation: Allocation, minutes: int) -> None:
        """A job starts, for at most so long."""
        if self._rules.known:
            charge, factor = charge_of(self._rules, record, allocation), self._rules.usage_factor(record.spec.qos)
            count_in(self.in_use, charge)
            self.starting.append((self._now + minutes * 60.0, charge, factor))
            if self._rules.foresees:
                self._minutes.committed.add(charge.keys, charge.tres, self._now + minutes * 60.0, factor)
