"""What one cycle has decided so far, and what it does with the next job: start it, make room for it, or say why it
waits and promise it a start. Whose turn it is is `cycle.run`'s to say.

Source: slurm.conf(5) SchedulerType, SchedulerParameters; squeue(1) JOB REASON CODES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.job_tres import allocated_pairs
from spritz.model.plan import Plan, PlannedPreemption, PlannedStart
from spritz.model.reasons import Reason
from spritz.scheduling.forecast import as_arrays, together
from spritz.scheduling.guests import make_room
from spritz.scheduling.happenings import Begun
from spritz.scheduling.kept import Kept
from spritz.scheduling.licensing import NONE_ASKED, Licensing
from spritz.scheduling.limits import Limits
from spritz.scheduling.notes import PRIORITY, Notes
from spritz.scheduling.placement.holding import holders_of
from spritz.scheduling.policy import policy_of
from spritz.scheduling.preemption import Preemptor
from spritz.scheduling.promises import Promises
from spritz.scheduling.records import Verdict
from spritz.scheduling.search import Search
from spritz.scheduling.shortest import Neediest, Shortest
from spritz.scheduling.turns import Turns
from spritz.scheduling.verdicts import partition_verdict, reserved_verdict, stuck_verdict
from spritz.scheduling.waking import POWERED, Waking

if TYPE_CHECKING:
    from spritz.model.limits.guarantees import Guarantee
    from spritz.model.plan import Forecast
    from spritz.model.resources import Allocation
    from spritz.notation.licenses import Needs
    from spritz.scheduling.nodes import Holder
    from spritz.scheduling.records import Entry, JobRecord, Rank, Shape, SortKey
    from spritz.scheduling.request import Request
    from spritz.scheduling.search import Found
    from spritz.scheduling.snapshot import Snapshot
    from spritz.scheduling.table import Ints


class Cycle:
    """What one cycle has decided so far."""

    def __init__(self, snapshot: Snapshot, budget: int | None, full: bool) -> None:
        self.snapshot = snapshot
        self.policy = policy_of(snapshot.settings)
        self.full = full
        #: are expected starts reckoned for those without promises?
        self.forecast = True
        self.budget = budget
        #: from outside, before all jobs had been looked at
        self.stopped = False
        #: seconds since the epoch: until then nobody starts while a job is completing (0.0: nothing keeps them)
        self.look_again_at = 0.0
        #: how often a shape was looked at
        self.visited = 0
        #: heads that had been found when hopeless shapes were last left out
        self._skipped_at = 0
        #: partitions in which nobody else starts
        self._closed: set[tuple[str, str]] = set()
        self.table = snapshot.table.fork()
        self.limits = Limits(snapshot)
        self.starts: list[PlannedStart] = []
        self.started: set[int] = set()
        self._guarantees = bool(snapshot.rules.guarantees)
        #: the array that was looked at last has tasks left that are not within its account's guarantee, as others were
        self.beyond = False
        #: what is promised, and what that leaves to others
        #: shapes that limits or licenses hold back, by order
        self._held: dict[int, Shape] = {}
        #: records of arrays of which as many tasks run as may
        self._capped: dict[int, JobRecord] = {}
        self._begun: list[Begun] = []
        self.kept = Kept(snapshot, self.table, self.policy, self.rank)
        self.promises = Promises(snapshot, self.table, self.policy, self.kept, full=full)
        self.licensing = Licensing(snapshot, self.kept)
        #: with bf_predict=slowdown: who is looked at first
        self._needs: Neediest | None = None
        if self.policy.predict_slowdown:
            self._needs = Neediest(snapshot.run_times, self.kept.ledger, self.kept.overdue, snapshot.now)
        #: with bf_predict: those behind the first blocked job of their partition
        self.shortest = Shortest(snapshot.run_times, self._needs)
        #: partitions whose first blocked job has been found
        self.headed: set[tuple[str, str]] = set()
        self.search = Search(snapshot, self.table, self.policy, self.kept, self.headed, self.roomy)
        self._array_starts: dict[int, int] = {}
        self._gates: dict[int, Verdict | None] = {}
        self.notes = Notes(snapshot, self.policy.resolution_seconds)
        self.preemptor = Preemptor(snapshot, quick=not full and budget is not None)
        self.preemptions: list[PlannedPreemption] = []
        self.waking = Waking(snapshot.powered)
        self._taken = 0
        #: array tasks that wait for others to make room, by the array's number
        self._promised_tasks: dict[int, int] = {}
        self._check_memo()

    @property
    def exhausted(self) -> bool:
        """No budget is left."""
        if self.budget is None:
            return False
        most = self.policy.quick_starts_max
        return self.search.examined >= self.budget or (most is not None and len(self.starts) >= most)

    # -- many shapes at once

    def may_skip(self) -> bool:
        """A quick cycle has found the first blocked job of a partition: shapes that failed, and that nothing freed
        since could help, need not be looked at one by one.
        """
        return not self.full and len(self.headed) != self._skipped_at

    def without_hopeless(self, waiting: list[Entry]) -> list[Entry]:
        """Those that may start, or of which something else must be said than before."""
        self._skipped_at = len(self.headed)
        kept, left_out = self.search.hopeful(waiting, self._could_preempt)
        self.promises.pass_over(left_out)
        return kept

    def _could_preempt(self, shape: Shape) -> bool:
        return self.preemptor.enabled and self.preemptor.could_preempt(shape.jobs[shape.keys[0]], shape.request)

    # -- predictions

    def has_new_head(self) -> bool:
        """A partition's first blocked job has been found since those behind were last put in order."""
        return len(self.headed) != self.shortest.heads

    def shortest_first(self, waiting: list[Entry]) -> list[Entry]:
        """Behind the first blocked job of a partition, those of each PriorityTier go shortest prediction first."""
        self.shortest.heads = len(self.headed)
        found = []
        for entry in waiting:
            _rank, order, position, shape = entry
            if shape.request.line in self.headed and shape not in self.shortest:
                self.shortest.put(shape, position)
                entry = (self.rank_at(shape, 0), order, 0, shape)
            found.append(entry)
        return found

    def rank_at(self, shape: Shape, position: int) -> Rank:
        """The place of that job of the shape among all."""
        key = self.shortest.keys_of(shape)[position]
        return self.shortest.rank(shape, key) if shape in self.shortest else self.rank(shape, key)

    # -- one job

    def rank(self, shape: Shape, key: SortKey) -> Rank:
        """The place of one of the shape's jobs among all. Within a PriorityTier those come first that take no more than
        their account is guaranteed.
        """
        rest: Rank = key[1:] if self._needs is None else self._needs.rank(shape, key)
        if not self._guarantees:
            return key if self._needs is None else (key[0], *rest)
        within = shape.request.guaranteed and self.roomy(shape.jobs[key], shape.request)
        return (key[0], not within, *rest)

    def roomy(self, record: JobRecord, request: Request) -> tuple[Guarantee, ...]:
        """Guarantees with room for the job."""
        return self.limits.within_guarantees(record, request)

    def consider(self, record: JobRecord, key: Rank, shape: Shape) -> bool:
        """Start the job, or as many tasks of the array as may start; else see when it can.

        False: no other job of this shape need be looked at.
        """
        if record.id in self.started:
            return True
        request = shape.request
        if request.line in self._closed:
            self.notes.shape(shape, PRIORITY)
            return False
        verdict = self.gate(shape)
        if verdict is not None:
            self.notes.shape(shape, verdict)
            if verdict is LICENSES:
                self._held[shape.order] = shape
            return False
        while not self.exhausted:
            task_id = self._next_task(record)
            if task_id is _NO_TASK:
                return True
            if request.guaranteed and record.tasks is not None and not key[1] and not self.roomy(record, request):
                self.beyond = True
                return True
            limited = self.limits.verdict(record, request)
            if limited is not None:
                return self._limited(shape, limited)
            licensed = self.licensing.find(record, key, request)
            found = self.search.find(record, key, shape) if licensed is not None else None
            limited = self.limits.verdict(record, request, found[0]) if found is not None else None
            if limited is not None:
                return self._limited(shape, limited)
            if found is not None and not self.waking.allows(found[0]):
                self.notes.shape(shape, POWERED)
                return False
            if found is None:
                if self._make_room(record, key, request, task_id):
                    if record.tasks is None:
                        return True
                    continue
                return self._blocked(record, shape) if licensed is not None else self._unlicensed(record, shape)
            self.start(record, request, found, task_id, self._break_for(record, key, request))
            if record.tasks is None:
                return True
            if self.licensing.find(record, key, request) is None:
                return self._unlicensed(record, shape)
        return False

    def _limited(self, shape: Shape, verdict: Verdict) -> bool:
        """With assoc_limit_stop nobody behind a job that a limit holds back starts in its partition."""
        self.notes.shape(shape, verdict)
        self._held[shape.order] = shape
        if self.policy.stop_at_limits:
            self._closed.add(shape.request.line)
        return False

    def gate(self, shape: Shape) -> Verdict | None:
        """What keeps every job of the shape back, whatever is free."""
        request = shape.request
        if shape.order not in self._gates:
            found = partition_verdict(self.snapshot, request)
            self._gates[shape.order] = found or self.snapshot.reserved.verdict(request, self.snapshot.now)
        verdict = self._gates[shape.order]
        later = self.preemptor.reclaims or self.licensing.ahead
        if verdict is None and not later and not self.licensing.free(request):
            return LICENSES
        return verdict

    def _next_task(self, record: JobRecord) -> int | None:
        """The array task to start next: None for a job that is no array, `_NO_TASK` if none may start."""
        array_id = record.array_job_id
        if not array_id:
            return None
        limit = self.snapshot.array_limits.get(array_id, 0)
        begun = self._array_starts.get(array_id, 0)
        if limit and self.snapshot.array_running.get(array_id, 0) + begun >= limit:
            self.notes.job(record, Verdict(Reason.ARRAY_TASK_LIMIT))
            self._capped[record.id] = record
            return _NO_TASK
        if record.tasks is None:
            return None
        left = self.notes.tasks_left(record) & ~self._promised_tasks.get(record.id, 0)
        return (left & -left).bit_length() - 1 if left else _NO_TASK

    def start(self, record: JobRecord, request: Request, found: Found, task_id: int | None, licenses: Needs) -> None:
        """The job starts there, with these licenses."""
        allocation, minutes = found
        self.starts.append(
            PlannedStart(
                job_id=record.id,
                task_id=task_id,
                allocation=allocation,
                time_limit_minutes=minutes,
                licenses=tuple(licenses.items()),
                priority=self.snapshot.pricing.priority(record, request.partition, self.snapshot.now),
                backfilled=request.line in self.headed,
            )
        )
        self._take(record, request, found, licenses)
        if self.notes.started(record, task_id):
            self.started.add(record.id)

    def _take(
        self, record: JobRecord, request: Request, found: Found, licenses: Needs | None = None
    ) -> list[tuple[int, Holder]]:
        """The job has these resources from now on. `licenses` None: those that are free."""
        allocation, minutes = found
        # Every start gets a number that no job has; jobs before this cycle keep theirs.
        self._taken += 1
        alias = -(1 << 40) - self._taken
        ends_at = self.snapshot.now + (request.seconds if minutes is None else minutes * 60.0)
        holders = holders_of(allocation, request, alias, record.spec.uid, self.table, ends_at)
        for index, holder in holders:
            self.table.charge(index, holder)
        self.preemptor.charge(holders)
        self.waking.take(allocation)
        self.limits.take(record, allocation, request.time_limit_minutes if minutes is None else minutes)
        self._begun.append(Begun(record, ends_at))
        self.kept.redeem(record)
        if request.line in self.headed:
            self.search.backfilled += 1
        self.licensing.take(request, allocation, ends_at, licenses)
        if record.array_job_id:
            self._array_starts[record.array_job_id] = self._array_starts.get(record.array_job_id, 0) + 1
        return holders

    def _break_for(self, record: JobRecord, key: Rank, request: Request) -> Needs:
        """Licenses that the job takes. Promises of these to jobs that rank lower are not kept."""
        needs, broken = self.licensing.find(record, key, request) or NONE_ASKED
        self.kept.take_back(broken)
        return needs

    def hold(self, record: JobRecord, request: Request, allocation: Allocation) -> None:
        """These resources are the job's when others have left them: nobody behind it gets them."""
        self._take(record, request, (allocation, None))
        self.notes.job(record, Verdict(Reason.RESOURCES))

    def take_over(
        self, record: JobRecord, request: Request, allocation: Allocation, task_id: int | None = None
    ) -> None:
        """The job starts there at once: others stand aside."""
        self._take(record, request, (allocation, None))
        if self.notes.started(record, task_id):
            self.started.add(record.id)

    # -- backfill

    def _unlicensed(self, record: JobRecord, shape: Shape) -> bool:
        """The job waits for licenses; with bf_licenses it is promised a start like others."""
        if self.licensing.never(shape.request):
            self.notes.shape(shape, LICENSES)
            self._held[shape.order] = shape
            return False
        return self._blocked(record, shape, LICENSES)

    def _blocked(self, record: JobRecord, shape: Shape, lacking: Verdict | None = None) -> bool:
        """The job must wait: say why, and promise it a start if it is its turn. True: look at the next of the shape.

        `lacking`: what it waits for, if that is not room.
        """
        request = shape.request
        stuck = stuck_verdict(self.snapshot, shape)
        asleep = lacking is None and self.waking.keeps_back(self.snapshot, request)
        if stuck is not None:
            self.notes.shape(shape, POWERED if asleep and stuck.reason in _NODES_AWAY else stuck)
            return False
        lacking = POWERED if asleep else lacking
        self.notes.shape(shape, lacking or PRIORITY)
        nowhere = shape.failure is not None and shape.failure.version is None
        reserved = lacking or reserved_verdict(self.snapshot, self.table, request, nowhere=nowhere)
        if reserved is not None:
            self.notes.shape(shape, reserved)
        head = request.line not in self.headed
        if head:
            self.notes.job(record, reserved or Verdict(Reason.RESOURCES))
            if max(record.entries, key=self._entry_order)[1] is shape:
                self.headed.add(request.line)
            # else the job may yet start in another of its partitions, and the next one here is the first.
        return self.promises.wait(record, shape, head=head)

    def _entry_order(self, entry: tuple[SortKey, Shape]) -> tuple[Rank, int]:
        """In which order its partitions are tried."""
        key, shape = entry
        return (key if self._needs is None else self.rank(shape, key), shape.order)

    # -- preempt

    def _make_room(self, record: JobRecord, key: Rank, request: Request, task_id: int | None) -> bool:
        """Others make room, or are doing so: the job starts, or has its place kept until they have left."""
        if request.reservation and self._send_guests_away(record, key, request, task_id):
            return True
        if not self.preemptor.enabled:
            return False
        kept, ends_at = self.kept, self.snapshot.now + request.seconds
        roomy = self.roomy(record, request)

        def accept(allocation: Allocation) -> bool:
            """It breaks no promise to those before it, no limit, and takes no more back than is guaranteed."""
            if not self.waking.allows(allocation):
                return False
            if not self.preemptor.reclaims and self.licensing.find(record, key, request) is None:
                return False
            broken = kept.outranked(record, key, request, allocation, ends_at, any_age=True)
            if broken is None or self.limits.verdict(record, request, allocation) is not None:
                return False
            return roomy == () or self.limits.roomy(record, request.partition, allocated_pairs(allocation)) == roomy

        def apart() -> Ints:
            return kept.unpromised_until(ends_at, request)

        pool = self.licensing.pool
        pool = pool.without(self.licensing.reserved(request)) if request.licenses else pool
        room = self.preemptor.find(record, request, task_id, self.table, pool, accept, apart, roomy)
        if room is None and roomy:
            # More than is guaranteed may yet be had in the usual way.
            roomy = ()
            room = self.preemptor.find(record, request, task_id, self.table, pool, accept, apart)
        self.search.examined += self.preemptor.placements
        self.preemptor.placements = 0
        if room is None:
            return False
        if room.planned is not None:
            self.preemptions.append(room.planned)
        kept.take_back(kept.outranked(record, key, request, room.allocation, ends_at, any_age=True) or ())
        self._break_for(record, key, request)
        if not room.at_once:
            self._wait_for_place(record, request, room.allocation, task_id)
            return True
        self.take_over(record, request, room.allocation, task_id)
        return True

    def _send_guests_away(self, record: JobRecord, key: Rank, request: Request, task_id: int | None) -> bool:
        """Jobs of others that the reservation lets in leave it for this one, which has their place when they have."""
        planned = make_room(self.snapshot, self.table, record, request, task_id)
        if planned is None or not self.licensing.free(request):
            return False
        if self.limits.verdict(record, request, planned.allocation) is not None:
            return False
        ends_at = self.snapshot.now + request.seconds
        broken = self.kept.outranked(record, key, request, planned.allocation, ends_at, any_age=True)
        if broken is None:
            return False
        self.kept.take_back(broken)
        self.preemptions.append(planned)
        self._wait_for_place(record, request, planned.allocation, task_id)
        return True

    def _wait_for_place(self, record: JobRecord, request: Request, allocation: Allocation, task_id: int | None) -> None:
        """The job has its place when others have left it."""
        self.hold(record, request, allocation)
        if task_id is not None and record.tasks is not None:
            self._promised_tasks[record.id] = self._promised_tasks.get(record.id, 0) | 1 << task_id

    # -- result

    def plan(self) -> Plan:
        """The plan, with notes for jobs whose reason has changed."""
        complete = not self.exhausted and not self.stopped
        memo = self.snapshot.memo
        memo.planned = [(start.job_id, start.task_id) for start in self.starts]
        self.promises.tell(self.notes, self.started)
        if self.full and self.promises.due(self.started):
            self.look_again_at = self.snapshot.now
        plan = Plan(
            starts=tuple(self.starts),
            preemptions=tuple(self.preemptions),
            notes=self.notes.collect(self.started, complete),
            promises=self.promises.list(),
            forecast=self._forecast() if self.full and self.forecast and complete else None,
            examined=self.search.examined,
            visited=self.visited,
            complete=complete,
            no_room=tuple(self.preemptor.in_vain.found) if self.full else (),
            victims_wanted=self.preemptor.put_off,
            look_again_at=min(filter(None, (self.look_again_at, self.preemptor.in_vain.look_again_at)), default=0.0),
        )
        memo.made = plan, self.kept.version
        return plan

    def _forecast(self) -> Forecast:
        snapshot = self.snapshot
        known = list(self.promises.forecast(self.started))
        to_come = snapshot.to_come.values()
        if self._held or self._capped or to_come:
            turns = Turns(
                snapshot, self.limits, self.licensing.pool, self.promises.room, self._begun, self.notes.tasks_left
            )
            settled = self.started | self.promises.told
            turns.hold(self._held.values(), settled)
            turns.cap(record for record in self._capped.values() if record.id not in settled)
            turns.come(to_come, known)
            later = turns.starts()
            together(later, {record.id: record.het_job_id for record in to_come if record.het_job_id})
            known += later
        return as_arrays(known)

    def _check_memo(self) -> None:
        """Starts that the core dropped leave room that earlier failures did not see."""
        memo, records = self.snapshot.memo, self.snapshot.records
        for job_id, task_id in memo.planned:
            record = records.get(job_id)
            if record is None or not record.waiting:
                continue
            if task_id is None or (record.tasks is not None and record.tasks >> task_id & 1):
                self.snapshot.queue.forget_failures()
                break
        memo.planned = []


_NO_TASK = -1
LICENSES = Verdict(Reason.LICENSES)
_NODES_AWAY = frozenset({Reason.RESOURCES, Reason.NODES_NOT_AVAILABLE})
