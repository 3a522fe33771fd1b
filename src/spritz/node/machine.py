"""A node's decisions, as a pure function of orders and events: `Machine.handle` and `Machine.noticed_…`.

Every entry returns `actions` for the shell to carry out, in order. No clock, no I/O. One Machine per node.

A job is known from its first launch (or adoption) until it is *gone*: no step of it is left and its Epilog has run.
    launch (or LaunchProlog, at the allocation) ─▶ Prolog (once per job); later, where evicted jobs have not gone yet
    launch ─▶ supervisor started ─▶ its end ─▶ reported ─▶ acknowledged (spool removed)
    batch script over, or TerminateJob ─▶ all steps are ended ─▶ Epilog ─▶ gone ─▶ JobGone (or `job_gone` in the report)

Invariants: the same (job, restart count, step) is never started twice; an order of a lower term is refused; Prolog and
Epilog run at most once per life of a job; JobGone is reported only when nothing is left. Sources:
`model.node_daemon`, slurm.conf(5) Prolog, Epilog.

Orders may come twice (their answer was lost, or the controller derived them again), late (another node passed them on),
and in another order than they were sent (over two ways). What is remembered here makes that harmless:

    launch, again                   the step is here, waits, or has ended: nothing
    launch, after the end           `_ended`, `_gone`: of what was ended before it came; it starts nothing
    launch, after the suspension    the step is suspended as it starts; an older word than the last is passed over
    end, again                      the answer is as before, however often it is asked for
    anything of a deposed leader    its term is lower
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from spritz.model.ids import STEP_BATCH, STEP_EXTERN
from spritz.model.job.record import Job
from spritz.model.node_daemon.launch import (
    AttachClient,
    LaunchBatch,
    LaunchProlog,
    LaunchStep,
    NotifyTasks,
    SignalTasks,
    SuspendTasks,
    TerminateJob,
    TerminateStep,
)
from spritz.model.node_daemon.reports import (
    ENDED_BY_BOOT,
    JobGone,
    NodePrologEnded,
    NodeTrouble,
    RunningStep,
    StepFinished,
    TaskEnd,
)
from spritz.model.rejection import Rejection
from spritz.model.states import JobState
from spritz.node.actions import (
    Actions,
    AttachToStep,
    CleanUp,
    EndStep,
    Life,
    NotifyStep,
    RemoveSpool,
    Report,
    RunEpilog,
    RunProlog,
    Send,
    SignalStep,
    StartSupervisor,
    StepKey,
    SuspendStep,
)

#: Ended steps and jobs remembered, so that a late or repeated message starts nothing.
REMEMBERED_MAX = 10_000


class _JobHere:
    """A job on this node. `steps` are those whose end has not been seen; `queued` wait for the Prolog, or until
    evicted jobs are gone.
    """

    __slots__ = (
        "epilog",
        "evicted",
        "job",
        "over",
        "prolog",
        "queued",
        "steps",
        "suspended",
        "suspended_as_of",
        "waits",
        "wants_gone",
        "wants_prolog",
    )

    def __init__(self, job: Job) -> None:
        self.job = job
        self.steps: dict[int, StepKey] = {}
        self.queued: list[LaunchBatch | LaunchStep] = []
        #: "", "running", "done" or "failed"
        self.prolog = ""
        self.epilog = ""
        #: the end of the Prolog must be reported to the controller
        self.wants_prolog = False
        #: No further step may start. Never taken back: a life that is over is over, and a launch that comes yet is
        #: late.
        self.over = False
        #: the end of the job's last process must be reported to the controller
        self.wants_gone = False
        #: steps that start now are suspended at once
        self.suspended = False
        #: term and version of the controller that said so last
        self.suspended_as_of = (0, 0)
        #: the controller may give its resources to others already: it lost the node, set it DOWN, or did not hear of it
        #: for long
        self.evicted = False
        #: nothing of it begins before evicted jobs are gone, for it may have been given what they still use
        self.waits = False


def _note_suspension(entry: _JobHere, message: LaunchBatch | LaunchStep | SuspendTasks, *, suspended: bool) -> bool:
    """Whether the message is not older than what was said last: one that another node passes on may come late."""
    as_of = (message.term, message.version)
    if message.version and as_of < entry.suspended_as_of:
        return False
    entry.suspended_as_of = max(as_of, entry.suspended_as_of)
    entry.suspended = suspended
    return True


class Machine:
    """Decides for one node. `prolog`, `epilog`: whether there are such programs. `kill_wait_seconds` as configured."""

    def __init__(self, node: str, *, prolog: bool = False, epilog: bool = False, kill_wait_seconds: int = 30) -> None:
        self.node = node
        self.term = 0
        self.has_prolog = prolog
        self.has_epilog = epilog
        self.kill_wait_seconds = kill_wait_seconds
        self._jobs: dict[Life, _JobHere] = {}
        #: Steps that ended here: key -> acknowledged. Until then the step is named at registrations: the controller
        #: would otherwise take it for lost, and queue a job again that has succeeded.
        self._ended: dict[StepKey, bool] = {}
        #: Jobs that have left -> when they were started, by the controller's clock. By that a restored controller's new
        #: job is told from an older one of the same number.
        self._gone: dict[Life, float] = {}
        #: highest job id that was ever launched here
        self.last_job_id = 0
        self._handlers: dict[type[Struct], Callable[..., Actions | Rejection]] = {
            LaunchProlog: self._launch_prolog,
            LaunchBatch: self._launch,
            LaunchStep: self._launch,
            SignalTasks: self._signal,
            TerminateStep: self._terminate_step,
            TerminateJob: self._terminate_job,
            SuspendTasks: self._suspend,
            AttachClient: self._attach,
            NotifyTasks: self._notify,
        }

    # Orders of the controller

    def handle(self, message: Struct, term: int) -> Actions | Rejection:
        """Carry out an order of the controller of that term. A Rejection changes nothing."""
        # Two controllers may both believe to be in charge for a moment (a paused machine, a split network). The one
        # with the lower term has been replaced; whatever it decides is not in the journal that counts.
        if term < self.term:
            return Rejection(
                code="ESLURM_DISABLED", message=f"controller of term {term} was replaced by one of term {self.term}"
            )
        self.term = term
        return self._handlers[type(message)](message)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Jobs of which a step or the Epilog still runs here."""
        return tuple(entry.job for entry in self._jobs.values())

    @property
    def running(self) -> tuple[RunningStep, ...]:
        """Steps that live here, wait for the Prolog, or whose end the controller has not acknowledged."""
        here = [key for entry in self._jobs.values() for key in entry.steps.values()]
        waiting = [_key(message) for entry in self._jobs.values() for message in entry.queued]
        unacknowledged = [key for key, done in self._ended.items() if not done]
        return (*here, *waiting, *unacknowledged)

    @property
    def lives(self) -> tuple[Life, ...]:
        """(job id, restart count) of all jobs here."""
        return tuple(self._jobs)

    @property
    def runs(self) -> tuple[tuple[int, int, float], ...]:
        """(job id, restart count, start) of the jobs here, and of those of which a report is not acknowledged."""
        runs = {life: entry.job.started_at for life, entry in self._jobs.items()}
        for key, done in self._ended.items():
            life = (key.job_id, key.restart_count)
            if not done and life in self._gone:
                runs[life] = self._gone[life]
        return tuple((*life, started_at) for life, started_at in runs.items())

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def _another_run(self, job: Job) -> Rejection | None:
        """Make way for another run of a job whose number an earlier run on this node has, with a later start: the
        controller's state was restored from a copy, and lacks the earlier run, perhaps of another job. Refuse the new
        run until the earlier one is over and reported.

        What an earlier controller may still send about the earlier run has a lower term.
        """
        life = (job.id, job.restart_count)
        entry = self._jobs.get(life)
        # 0.0: not launched here, or not by the record
        before = entry.job.started_at if entry is not None else self._gone.get(life, 0.0)
        if not 0.0 < before < job.started_at:
            return None
        keys = [key for key in self._ended if (key.job_id, key.restart_count) == life]
        if entry is not None or not all(self._ended[key] for key in keys):
            message = f"an earlier run of job {job.id} has not ended here yet"
            return Rejection(code="ESLURM_ALREADY_DONE", message=message)
        del self._gone[life]
        for key in keys:
            del self._ended[key]
        return None

    def _launch_prolog(self, message: LaunchProlog) -> Actions | Rejection:
        refusal = self._another_run(message.job)
        if refusal is not None:
            return refusal
        self.last_job_id = max(self.last_job_id, message.job.id)
        life = (message.job.id, message.job.restart_count)
        entry = self._jobs.get(life)
        if life in self._gone or (entry is not None and entry.over):
            return []  # the report of its end suffices; a Prolog that ran now would have no Epilog after it
        if entry is None:
            entry = self._add(message.job)
        entry.wants_prolog = True
        return self._begin_prolog(life, entry)

    def _add(self, job: Job) -> _JobHere:
        """A job that is new here."""
        # The controller takes resources for free that an evicted job still uses, and may have given them to this one.
        # It waits as a whole, since which of them it got need not be known here.
        entry = _JobHere(job)
        entry.waits = any(other.evicted for other in self._jobs.values())
        self._jobs[job.id, job.restart_count] = entry
        return entry

    def _begin_prolog(self, life: Life, entry: _JobHere) -> Actions:
        """Run the Prolog, unless it was; without one it has ended well at once."""
        if entry.prolog == "running" or entry.waits:
            return []
        if self.has_prolog and entry.prolog == "":
            entry.prolog = "running"
            return [RunProlog(entry.job)]
        entry.prolog = "done"
        return [self._prolog_report(life, "")]

    def _prolog_report(self, life: Life, error: str) -> Send:
        return Send(NodePrologEnded(node=self.node, job_id=life[0], restart_count=life[1], error=error))

    def _launch(self, message: LaunchBatch | LaunchStep) -> Actions | Rejection:
        refusal = self._another_run(message.job)
        if refusal is not None:
            return refusal
        self.last_job_id = max(self.last_job_id, message.job.id)
        key = _key(message)
        life = (key.job_id, key.restart_count)
        entry = self._jobs.get(life)
        # Launches may be repeated, by a controller that restarted or did not hear the answer. Every "was here already"
        # below is silence and no error: the report about that step is the answer, and it is repeated until
        # acknowledged.
        if key in self._ended:
            return []
        # Of a life that is gone no step was here by this key, so no report of it will come: it is refused, and the
        # controller takes the launch for failed.
        if life in self._gone:
            return Rejection(code="ESLURM_ALREADY_DONE")
        if entry is None:
            entry = self._add(message.job)
            waited_for = message.job.prolog_nodes
            if waited_for is not None and self.node not in waited_for:
                entry.prolog = "done"  # in an earlier life of this daemon, at the allocation
        elif key.step_id in entry.steps or any(_key(queued) == key for queued in entry.queued):
            return []
        elif entry.over:
            return Rejection(code="ESLURM_ALREADY_DONE")
        if entry.prolog == "failed":
            return Rejection(code="ESLURMD_PROLOG_FAILED", message="Job prolog failed")
        # Before it is queued: it may wait for long, and what is said meanwhile is newer.
        _note_suspension(entry, message, suspended=message.job.state is JobState.SUSPENDED)
        if entry.waits:
            entry.queued.append(message)
            return []
        if self.has_prolog and entry.prolog in ("", "running"):
            entry.queued.append(message)
            if entry.prolog == "running":
                return []
            entry.prolog = "running"
            return [RunProlog(message.job)]
        return self._start(entry, message)

    def _start(self, entry: _JobHere, message: LaunchBatch | LaunchStep) -> Actions:
        key = _key(message)
        entry.steps[key.step_id] = key  # before its supervisor is there: the launch may be repeated meanwhile
        start = StartSupervisor(key, message)
        return [start, SuspendStep(key, resume=False)] if entry.suspended else [start]

    def _signal(self, message: SignalTasks) -> Actions:
        entry = self._jobs.get((message.job_id, message.restart_count))
        if entry is None:
            return []
        if message.step_id is not None:
            key = entry.steps.get(message.step_id)
            shell_only = message.step_id == STEP_BATCH and not message.full
            return [SignalStep(key, message.signal, shell_only)] if key is not None else []
        actions: Actions = []
        for step_id, key in entry.steps.items():
            if step_id == STEP_EXTERN:
                continue  # signals are only for the user's processes
            is_batch = step_id == STEP_BATCH
            if is_batch and not (message.batch or message.full):
                continue
            if not is_batch and message.batch and not message.full:
                continue
            actions.append(SignalStep(key, message.signal, is_batch and not message.full))
        return actions

    def _terminate_step(self, message: TerminateStep) -> Actions:
        key = StepKey(message.job_id, message.restart_count, message.step_id)
        entry = self._jobs.get((message.job_id, message.restart_count))
        if entry is not None:
            if message.step_id in entry.steps:
                return [EndStep(key, message.kill_wait_seconds, message.cause, message.at)]
            # A step that waits for the Prolog ends without a supervisor, so its report is made here. It counts as ended
            # as well: the launch, repeated, would otherwise queue it again.
            waiting = [queued for queued in entry.queued if _key(queued) == key]
            if waiting:
                entry.queued.remove(waiting[0])
                self._remember_end(key)
                return [self._never_ran(key, "cancelled before it could start")]
        if key in self._ended and not self._ended[key]:
            return []  # its report is under way
        # Its launch may still come: from a node that could not pass it on for a while.
        self._remember_end(key)
        return [self._never_ran(key, "no such step on this node")]

    def _never_ran(self, key: StepKey, why: str) -> Send:
        # the shell adds the time
        return Send(
            StepFinished(
                node=self.node,
                job_id=key.job_id,
                restart_count=key.restart_count,
                step_id=key.step_id,
                ended_at=0.0,
                launch_failed=True,
                error=why,
                error_kind="unknown",
            )
        )

    def _terminate_job(self, message: TerminateJob) -> Actions:
        life = (message.job.id, message.job.restart_count)
        entry = self._jobs.get(life)
        if entry is None:
            # A job that was never here needs its Epilog all the same, because its allocation included this node;
            # without an Epilog, or after it, the answer is that the job has gone, however often it is asked for.
            if life in self._gone or not self.has_epilog:
                # Its launch may still come, as that of a step. Of a job that waits again only its end is known here.
                self._remember_gone(life, message.job.started_at or message.at)
                return [self._job_gone(life)]
            entry = self._jobs[life] = _JobHere(message.job)
        entry.over = True
        entry.wants_gone = True
        # Once given back, always: a repeated order of a controller that has restarted need not say so.
        entry.evicted = entry.evicted or message.given_back
        actions: Actions = [self._never_ran(_key(queued), "job was cancelled") for queued in entry.queued]
        entry.queued.clear()
        wait = 0.0 if message.kill_now else float(message.kill_wait_seconds)
        actions += [EndStep(key, wait, message.cause, message.at) for key in entry.steps.values()]
        return actions + self._go_on(life, entry)

    def _suspend(self, message: SuspendTasks) -> Actions:
        entry = self._jobs.get((message.job_id, message.restart_count))
        if entry is None or not _note_suspension(entry, message, suspended=not message.resume):
            return []
        return [SuspendStep(key, message.resume, float(message.grace_seconds)) for key in entry.steps.values()]

    def _attach(self, message: AttachClient) -> Actions | Rejection:
        for entry in self._jobs.values():
            key = entry.steps.get(message.step_id)
            if key is not None and key.job_id == message.job_id:
                return [AttachToStep(key, message.io_address, message.io_key)]
        return Rejection(code="ESLURM_INVALID_JOB_ID", message="Job step is not running on this node")

    def _notify(self, message: NotifyTasks) -> Actions:
        keys = [key for entry in self._jobs.values() for key in entry.steps.values() if key.job_id == message.job_id]
        if message.step_id is not None:
            return [NotifyStep(key, message.message, True) for key in keys if key.step_id == message.step_id]
        batch = [key for key in keys if key.step_id == STEP_BATCH]
        return [NotifyStep(key, message.message) for key in batch or keys if key.step_id != STEP_EXTERN]

    def dismissed(self) -> Actions:
        """The controller no longer has this node, and its jobs have failed or run elsewhere: end them at once."""
        return self.end_jobs(self.lives)

    def end_jobs(self, lives: Iterable[Life]) -> Actions:
        """End these jobs at once: they have failed here, as after a node was silent for long, or run elsewhere."""
        actions: Actions = []
        for life in lives:
            entry = self._jobs.get(life)
            if entry is None:
                continue
            entry.over = entry.evicted = True
            entry.wants_gone = True
            actions += [self._never_ran(_key(queued), "the job has ended") for queued in entry.queued]
            entry.queued.clear()
            actions += [EndStep(key, 0.0) for key in entry.steps.values()]
            actions += self._go_on(life, entry)
        return actions

    # Events

    def adopt(self, key: StepKey, job: Job) -> None:
        """After a restart: a step that an earlier daemon started. Its Prolog has run."""
        # Steps wait for the Prolog, so one that has started proves it. Run again it would meet the job's processes.
        entry = self._jobs.setdefault((key.job_id, key.restart_count), _JobHere(job))
        entry.prolog = "done"
        entry.steps[key.step_id] = key
        self.last_job_id = max(self.last_job_id, job.id)

    def noticed_end(self, key: StepKey, result: StepFinished) -> Actions:
        """A supervisor has reported, or the remains of a killed one are gone."""
        life = (key.job_id, key.restart_count)
        entry = self._jobs.get(life)
        # An end is noticed in several ways: a supervisor's report, its result in the spool, its death. One counts.
        if entry is None or entry.steps.pop(key.step_id, None) is None:
            return []
        self._remember_end(key)
        actions: Actions = []
        if result.error_kind == "unkillable":
            reason = f"Kill task failed, job {key.job_id}"
            actions.append(Send(NodeTrouble(name=self.node, reason=reason)))
        if key.step_id == STEP_BATCH:
            entry.over = True
            # Nothing is left to do for the job: one message reports the end of the script and that the job has gone.
            # Not where the controller waits for JobGone: `_go_on` also lets in what waited for an evicted job.
            if not entry.steps and not self.has_epilog and not entry.wants_gone:
                self._forget(life)
                return [*actions, Send(_with_job_gone(result))]
            actions += [Send(result)]
            entry.wants_gone = True
            actions += [EndStep(other, float(self.kill_wait_seconds)) for other in entry.steps.values()]
        else:
            actions.append(Send(result))
        return actions + self._go_on(life, entry)

    def noticed_death(self, key: StepKey) -> Actions:
        """The supervisor is gone without a result: it was killed, or could not start."""
        # Its tasks may run on, as children of another process. The step has ended when they are gone
        # (`leftovers_gone`): reported now, their CPUs would be given to another job.
        entry = self._jobs.get((key.job_id, key.restart_count))
        return [CleanUp(key)] if entry is not None and key.step_id in entry.steps else []

    def leftovers_gone(
        self,
        key: StepKey,
        now: float,
        *,
        began: bool,
        tasks: tuple[int, ...],
        error: str,
        booted: bool = False,
        unkillable: bool = False,
    ) -> Actions:
        """The processes of a dead supervisor are gone. `began`: its tasks may have run; `tasks` are their ranks.
        `booted`: the machine has booted since, and that ended them. `unkillable`: some of it does not die.
        """
        result = StepFinished(
            node=self.node,
            job_id=key.job_id,
            restart_count=key.restart_count,
            step_id=key.step_id,
            ended_at=now,
            tasks=tuple(TaskEnd(task, 9) for task in tasks) if began else (),
            launch_failed=not began,
            error=error,
            error_kind=ENDED_BY_BOOT if booted else "unkillable" if unkillable else "supervisor",
        )
        return self.noticed_end(key, result)

    def prolog_ended(self, job: Job, ok: bool, error: str, now: float) -> Actions:
        """The Prolog has run: start the waiting steps, or give the job back and request a drain."""
        life = (job.id, job.restart_count)
        entry = self._jobs.get(life)
        if entry is None:
            return []
        entry.prolog = "done" if ok else "failed"
        waiting, entry.queued = entry.queued, []
        if ok:
            started: Actions = [self._prolog_report(life, "")] if entry.wants_prolog else []
            started += [action for message in waiting for action in self._start(entry, message)]
            return started + self._go_on(life, entry)
        entry.over = True
        actions: Actions = [Send(NodeTrouble(name=self.node, reason="Prolog error"))]
        # Steps first, for they say why their srun fails: the report ends the job, and with it steps that are open. It
        # also says what becomes of the job, before the end of its script would.
        waiting.sort(key=lambda message: _key(message).step_id == STEP_BATCH)
        reported = not entry.wants_prolog
        for message in waiting:
            key = _key(message)
            self._remember_end(key)
            if key.step_id == STEP_BATCH and not reported:
                actions.append(self._prolog_report(life, error))
                reported = True
            actions.append(
                Send(
                    StepFinished(
                        node=self.node,
                        job_id=key.job_id,
                        restart_count=key.restart_count,
                        step_id=key.step_id,
                        ended_at=now,
                        launch_failed=True,
                        error=error,
                        error_kind="prolog",
                    )
                )
            )
        if not reported:
            actions.append(self._prolog_report(life, error))
        entry.wants_gone = True
        return actions + self._go_on(life, entry)

    def epilog_ended(self, job: Job, ok: bool) -> Actions:
        """The Epilog has run: the job is gone; a node whose Epilog fails requests a drain."""
        life = (job.id, job.restart_count)
        entry = self._jobs.get(life)
        if entry is None:
            return []
        entry.epilog = "done"
        actions: Actions = [] if ok else [Send(NodeTrouble(name=self.node, reason="Epilog error"))]
        return actions + self._go_on(life, entry)

    def acknowledged(self, report: Report) -> Actions:
        """The controller has stored a report."""
        if not isinstance(report, StepFinished):
            return []
        key = StepKey(report.job_id, report.restart_count, report.step_id)
        if key not in self._ended:
            return []
        # Only now is the result on the controller's disk, and may go from this one.
        self._ended[key] = True
        return [RemoveSpool(key)]

    # Parts

    def _go_on(self, life: Life, entry: _JobHere) -> Actions:
        """The next stage of a job that is over and has no steps left."""
        # "Gone" gives the job's resources to others. So nothing of it may be left, nor be about to begin: the Prolog
        # runs to its end, and the Epilog cleans up after it.
        if not entry.over or entry.steps or entry.queued or entry.prolog == "running":
            return []
        if self.has_epilog and entry.epilog == "":
            entry.epilog = "running"
            return [RunEpilog(entry.job)]
        if entry.epilog == "running":
            return []
        self._forget(life)
        reports: Actions = [self._job_gone(life)] if entry.wants_gone else []
        return reports + self._let_in() if entry.evicted else reports

    def _let_in(self) -> Actions:
        """Begin what has waited for evicted jobs, if none is left."""
        # For all of them: which resources a job that waits was given, and who still has them, is not looked at.
        if any(entry.evicted for entry in self._jobs.values()):
            return []
        actions: Actions = []
        for life, entry in self._jobs.items():
            if entry.waits:
                entry.waits = False
                if not entry.over:
                    actions += self._begin_waiting(life, entry)
        return actions

    def _begin_waiting(self, life: Life, entry: _JobHere) -> Actions:
        actions = self._begin_prolog(life, entry) if entry.wants_prolog else []
        if self.has_prolog and entry.prolog in ("", "running"):
            if entry.queued and not entry.prolog:
                entry.prolog = "running"
                actions.append(RunProlog(entry.job))
            return actions
        waiting, entry.queued = entry.queued, []
        return actions + [action for message in waiting for action in self._start(entry, message)]

    def _job_gone(self, life: Life) -> Send:
        return Send(JobGone(node=self.node, job_id=life[0], restart_count=life[1]))

    def _forget(self, life: Life) -> None:
        self._remember_gone(life, self._jobs.pop(life).job.started_at)

    def _remember_gone(self, life: Life, started_at: float) -> None:
        self._gone.setdefault(life, started_at)  # an order to end it that is repeated may not know when it was started
        while len(self._gone) > REMEMBERED_MAX:
            del self._gone[next(iter(self._gone))]

    def _remember_end(self, key: StepKey) -> None:
        self._ended[key] = False
        # Never those whose report is under way: forgotten, a step would count as lost at the next registration.
        if len(self._ended) > REMEMBERED_MAX:
            for old in [step_key for step_key, done in self._ended.items() if done][: REMEMBERED_MAX // 10]:
                del self._ended[old]


def _key(message: LaunchBatch | LaunchStep) -> StepKey:
    step_id = STEP_BATCH if isinstance(message, LaunchBatch) else message.step.step_id
    return StepKey(message.job.id, message.job.restart_count, step_id)


def _with_job_gone(result: StepFinished) -> StepFinished:
    return StepFinished(
        node=result.node,
        job_id=result.job_id,
        restart_count=result.restart_count,
        step_id=result.step_id,
        ended_at=result.ended_at,
        tasks=result.tasks,
        usage=result.usage,
        oom=result.oom,
        job_gone=True,
        launch_failed=result.launch_failed,
        error=result.error,
        error_kind=result.error_kind,
    )
