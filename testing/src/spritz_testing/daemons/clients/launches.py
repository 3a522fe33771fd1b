"""srun and salloc: an allocation that is asked for, waited for, held and given back, and steps in it.

The waits, repetitions and clean-up are production code of `cli.jobs.launch`, over a reactor on simulated sockets.
Standard input and output are not simulated: simulated supervisors tell srun how tasks end (`StepClient`), and where
they are silent it asks the controller, as the real one does.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import msgspec

from spritz.cli.jobs.launch import allocation
from spritz.cli.jobs.launch.controller import Controller, Interrupted, running_on
from spritz.cli.jobs.launch.create import create
from spritz.cli.jobs.launch.interrupts import Interrupts
from spritz.cli.jobs.launch.settings import Settings
from spritz.client.command import submission_retry  # noqa: F401 - imported by `allocation` when it would be after the seam
from spritz.client.errors import ClientError, RemoteError
from spritz.client.locate import read_keys
from spritz.model.commands.job import (
    CancelJobs,
    Done,
    FinishAllocation,
    JobSubmitted,
    SubmitHetJob,
    SubmitJob,
)
from spritz.model.commands.step import CreateStep, SignalStep
from spritz.model.errors import SpritzError
from spritz.model.job.step import StepSpec
from spritz.model.queries.allocations import AllocationGranted, AwaitAllocation
from spritz.model.queries.jobs import AwaitEnd, JobEndedReply
from spritz.model.resources import GresRequest
from spritz_testing.daemons.clients import blocking
from spritz_testing.daemons.clients.blocking import SimulatedReactor
from spritz_testing.daemons.clients.requests import new_job, submission, wanted_of
from spritz_testing.daemons.node.step_clients import StepClient
from spritz_testing.daemons.wanted import Change
from spritz_testing.daemons.workloads.workload import NewJob, NewStep

if TYPE_CHECKING:
    from typing import TypeVar

    from msgspec import Struct

    from spritz.model.job.step import Step
    from spritz_testing.daemons.clients.command import Command, Data
    from spritz_testing.daemons.history import Operation

    T = TypeVar("T")

#: Seconds of silence after which srun asks whether its step still runs; where supervisors are missing: at first, and at
#: most, as `cli.jobs.launch.run`.
_ASK_SECONDS = 5.0
_SOON_SECONDS, _SOON_SECONDS_MAX = 0.5, 10.0
#: As salloc's and srun's, when the connection that holds the job cannot be made again.
_HOLD_AGAIN_SECONDS = 1.0

_KINDS: dict[type, str] = {
    SubmitJob: "allocate",
    SubmitHetJob: "allocate",
    AwaitAllocation: "await",
    CancelJobs: "cancel",
    FinishAllocation: "finish",
    SignalStep: "end_step",
}


class Quiet:
    """As `cli.call.context.Context`: what a command prints enters the story."""

    cwd = "/"

    def __init__(self, command: Command) -> None:
        self._command = command
        self.environ: dict[str, str] = {}

    def info(self, message: str) -> None:
        command = self._command
        command.world.tell(f"{command.process} {command.user}: {message}")

    error = warn = info


class ToldController(Controller):
    """srun's connection; what it asks, and what it is told, enters the history."""

    def __init__(self, command: Command, reactor: SimulatedReactor, wanted: NewJob | None = None) -> None:
        self._command = command
        self._wanted = wanted
        self._request: Struct | None = None
        self._operation: Operation | None = None
        super().__init__(reactor)

    def send(self, request: Struct) -> None:
        self._enter(request)
        super().send(request)

    def wait(self, reply_type: type[T], *, seconds: float | None = None) -> T | None:
        try:
            reply = super().wait(reply_type, seconds=seconds)
        except ClientError as error:
            self._failed(error)
            raise
        if reply is not None:
            self._done(reply)
        return reply

    def call(self, request: Struct, reply_type: type[T], *, patience: float = 0.0) -> T:
        self._enter(request)
        try:
            reply = super().call(request, reply_type, patience=patience)
        except ClientError as error:
            self._failed(error)
            raise
        self._done(reply)
        return reply

    def _enter(self, request: Struct) -> None:
        """A request that is repeated, since its answer was lost, is the same operation."""
        if request is self._request:
            if self._operation is not None:
                self._operation.answer = None
            return
        self._request = request
        kind = _KINDS.get(type(request), "")
        wanted: Any = None
        if kind == "allocate" and self._wanted is not None:
            wanted = wanted_of(self._command, self._wanted)
        elif kind in ("cancel", "end_step"):
            wanted = Change(fields={"step": request.step_id} if isinstance(request, SignalStep) else {})
        elif isinstance(request, FinishAllocation):
            wanted = request.exit_status
        job_id = _job_of(request)
        self._operation = self._command.called(kind, job_id=job_id, wanted=wanted) if kind else None

    def _done(self, reply: Any) -> None:
        if self._operation is None:
            return
        answer: Any = None
        if isinstance(reply, AllocationGranted):
            job = reply.job
            answer = (job.state.value, [share.node for share in job.allocation.nodes] if job.allocation else [])
        job_id = reply.job_id if isinstance(reply, JobSubmitted) else 0
        if isinstance(reply, JobSubmitted) and self._wanted is not None:
            self._command.users.jobs[self._wanted.tag] = job_id
        self._command.done(self._operation, answer, job_id=job_id)

    def _failed(self, error: ClientError) -> None:
        if self._operation is not None:
            self._command.failed(self._operation, error)


def _words(wanted: NewStep) -> tuple[str, ...]:
    """What its tasks do, and what the history is to tell of it (`work`)."""
    words = f"seconds={wanted.seconds:g}", f"exit={wanted.exit_status}", f"overlap={wanted.overlap:d}"
    gpus = ("gpus=1",) if wanted.gpus else ()
    only = ("only=" + ",".join(map(str, wanted.failing)),) if wanted.failing else ()
    ignores = ("ignore=15",) if wanted.ignores_term else ()
    fails = (f"fail_node={','.join(wanted.fails_on)}",) if wanted.fails_on else ()
    return "sim", *words, *ignores, *fails, *gpus, *only


def _call(key: str) -> str:
    """The word by which the history knows the tasks of this call of srun."""
    return f"call={key[:16]}"


def _job_of(request: Struct) -> int:
    if isinstance(request, CancelJobs):
        return request.filter.targets[0].job_id
    return int(getattr(request, "job_id", 0))


class Session:
    """What srun and salloc have in common: a reactor, a connection, and signals."""

    def __init__(self, command: Command, wanted: NewJob | None = None) -> None:
        self.command = command
        self.world = command.world
        self.context: Any = Quiet(command)
        self.reactor = SimulatedReactor()
        self.controller = ToldController(command, self.reactor, wanted)
        self.interrupts = Interrupts(self.reactor, lambda number: None)
        command.on_signal = self._signalled
        #: of the step: what its supervisors talk to
        self.client: StepClient | None = None
        self.settings = Settings({}, read_keys(frozenset(("killwait",))), {})
        #: tasks of the step, and whether all are known to have ended
        self._tasks = 0
        self._all_ended = False
        #: a part of the step could not begin, or its supervisor died
        self._failed = False
        #: the user pressed Ctrl-C, or the job ended meanwhile
        self.aborted = False
        self.revoked = False

    def _signalled(self, number: int) -> None:
        self.interrupts._note(number, None)
        self.reactor.on_child()

    def obtain(self, wanted: NewJob, words: allocation.Words) -> AllocationGranted:
        """Ask for the job and wait for its start. Raises SpritzError, Revoked."""
        request = submission(self.command, wanted)
        granted = allocation.obtain(self.controller, self.interrupts, request, self.context, words, quiet=True)
        self.interrupts.handler = self._interrupted
        return granted

    def _interrupted(self, number: int) -> None:
        self.aborted = True
        self.reactor.stop()

    def pause(self, seconds: float) -> None:
        """Serve the connection for so long, or until the user has enough or the job has ended."""
        if self.aborted or self.revoked:
            return
        timer = self.reactor.after(seconds, self.reactor.stop)
        self.reactor.run()
        timer.cancel()

    def give_back(self, job_id: int, exit_status: int) -> None:
        if self.revoked:
            return
        if self.aborted:
            allocation.cancel(self.controller, job_id)
        else:
            allocation.give_back(self.controller, job_id, exit_status << 8)

    # Steps

    def create(self, job_id: int, wanted: NewStep, *, inside: bool) -> Step | None:
        """The step; None if the controller refuses it. Raises SpritzError if it does not answer."""
        request = CreateStep(job_id=job_id, spec=self._step_spec(wanted, inside), wait=True)
        asked = msgspec.structs.replace(wanted, call=_call(request.spec.io_key))
        operation = self.command.called("step", job_id=job_id, wanted=asked)
        self.interrupts.handler = self._interrupt_wait
        try:
            created = create(self.controller, request, self.settings, self.context, immediate=False)
        except SpritzError as error:
            if not isinstance(error.__cause__, Interrupted):
                self.command.failed(operation, error)
            if isinstance(error.__cause__, RemoteError | Interrupted):
                return None
            raise
        finally:
            self.interrupts.handler = self._interrupted
        step = created.step
        self.command.done(operation, (step.step_id, list(step.node_names)))
        return step

    def _interrupt_wait(self, number: int) -> None:
        self.aborted = True
        self.controller.interrupt(number)

    def _step_spec(self, wanted: NewStep, inside: bool) -> StepSpec:
        key = self.world.random("commands").randbytes(16).hex()
        process = self.command.process
        self.client = StepClient(process, f"unix:@spritz-{process.pid}-{key[:16]}")
        self.client.on_ended.append(lambda *_: blocking.interrupt(process, self._heard))
        self.client.on_lost = lambda: blocking.interrupt(process, self.reactor.stop)
        return StepSpec(
            name="sim",
            nodes_min=wanted.nodes,
            nodes_max=wanted.nodes,
            tasks=wanted.tasks,
            cpus_per_task=wanted.cpus_per_task,
            gpus_per_node=(GresRequest("gpu", "", wanted.gpus),) if wanted.gpus else (),
            ports=wanted.ports,
            memory_mib_per_node=wanted.memory_mib or None,
            overlap=wanted.overlap,
            time_limit_minutes=wanted.time_limit_minutes or None,
            exact=inside and not wanted.overlap,
            argv=(*_words(wanted), _call(key)),
            work_dir="/",
            io_address=self.client.address,
            io_key=key,
            submit_line="srun sim",
        )

    def _heard(self) -> None:
        """A task has ended."""
        self._all_ended = self.client is not None and len(self.client.ended) >= self._tasks
        if self._all_ended:
            self.reactor.stop()

    def await_step(self, step: Step, wanted: NewStep) -> int:
        """Its exit status, when the step has ended everywhere. A signal ends it, and so does one node's failure."""
        assert self.client is not None, "it has created the step"
        self._tasks = step.tasks
        self._heard()
        asks_at, soon, is_told = self.world.now + wanted.seconds + _ASK_SECONDS, _SOON_SECONDS, False
        while not (self.revoked or self._all_ended):
            if (self.aborted or self._failed) and not is_told:
                is_told = True
                self._end(step, signal.SIGKILL if self.aborted else 0)
            missing = self.client.missing(step.node_names)
            timer = self.reactor.after(soon if missing else asks_at - self.world.now, self.reactor.stop)
            self.reactor.run()
            timer.cancel()
            if self.world.now >= asks_at or missing & self.client.missing(step.node_names):
                if not self._runs(step):
                    break
                asks_at, soon = self.world.now + _ASK_SECONDS, min(2 * soon, _SOON_SECONDS_MAX)
            elif not missing:
                soon = _SOON_SECONDS
        return self._exit_status()

    def _runs(self, step: Step) -> bool:
        """Ask the controller whether the step still runs somewhere. Notes if a node has left it without a word."""
        assert self.client is not None, "it has created the step"
        running = running_on(self.controller, (step,), {})
        if running is None:
            return True
        here = {node for _, node in running}
        self._failed = self._failed or bool(self.client.missing(step.node_names) - here)
        return bool(here)

    def _exit_status(self) -> int:
        """As a shell sees it: 1 at least if nothing was heard of some tasks."""
        statuses = self.client.ended.values() if self.client is not None else ()
        codes = [128 + (status & 127) if status & 127 else status >> 8 for status in statuses]
        return max(codes if self._all_ended else [1, *codes])

    def _end(self, step: Step, number: int) -> None:
        try:
            request = SignalStep(job_id=step.job_id, step_id=step.step_id, signal=number, terminate=True)
            self.controller.call(request, Done)
        except ClientError:
            return  # it is ending already, or the controller does not answer: it is asked again

    # The job meanwhile

    def hold_again(self, job_id: int) -> None:
        """The connection broke: the controller must know that the client is alive. As `cli.jobs.launch.session`."""
        try:
            self.controller.call(AwaitAllocation(job_id=job_id), AllocationGranted)
        except RemoteError:
            return
        except ClientError:
            self.reactor.after(_HOLD_AGAIN_SECONDS, lambda: self.hold_again(job_id))
            return
        self.controller.watch_loss(lambda: self.hold_again(job_id))

    def watch_end(self, job_id: int) -> None:
        """As `cli.jobs.launch.salloc_session`: hear of the job's end."""
        operation = self.command.called("await_end", job_id=job_id)

        def ended(reply: JobEndedReply | None) -> None:
            self.command.done(operation, reply and (reply.state, reply.exit_status))
            self.revoked = True
            self.reactor.stop()

        def again() -> None:
            try:
                self.controller.call(AwaitAllocation(job_id=job_id), AllocationGranted)
            except RemoteError:
                ended(None)
            except ClientError:
                self.reactor.after(_HOLD_AGAIN_SECONDS, again)
            else:
                self.watch_end(job_id)

        try:
            self.controller.listen(AwaitEnd(job_id=job_id), JobEndedReply, ended, again)
        except ClientError:
            again()


def srun(command: Command, data: Data) -> None:
    """srun outside an allocation: a job for one step."""
    wanted = new_job(data)
    step_wanted = wanted.steps[0]
    session = Session(command, wanted)
    try:
        granted = session.obtain(wanted, allocation.SRUN)
    except allocation.Revoked:
        return
    job_id = granted.job.id
    assert granted.job.allocation is not None, "a running job has nodes"
    step_wanted = msgspec.structs.replace(step_wanted, nodes=len(granted.job.allocation.nodes))
    status = 1
    try:
        step = session.create(job_id, step_wanted, inside=False)
        if step is not None:
            session.controller.watch_loss(lambda: session.hold_again(job_id))
            status = session.await_step(step, step_wanted)
    finally:
        session.give_back(job_id, status)


def salloc(command: Command, data: Data) -> None:
    """salloc: an allocation that is held while a shell runs, from which srun is called."""
    wanted = new_job(data)
    session = Session(command, wanted)
    try:
        granted = session.obtain(wanted, allocation.SALLOC)
    except allocation.Revoked:
        return
    job_id = granted.job.id
    session.watch_end(job_id)
    run_steps(command, job_id, wanted.steps, command.process.host.name)
    until = session.world.now + wanted.seconds
    while not (session.aborted or session.revoked) and session.world.now < until:
        session.pause(until - session.world.now)
    session.give_back(job_id, wanted.exit_status)


def run_steps(command: Command, job_id: int, steps: tuple[NewStep, ...], host_name: str) -> None:
    """The user calls srun in the allocation: commands of their own, which end with the one that started them."""
    users, parent = command.users, command.process
    for step in steps:
        users.start_step(command.user, job_id, step, users.world.hosts[host_name], parent)


def step(command: Command, data: Data) -> None:
    """srun inside an allocation or a script: `data` has the job and the step."""
    wanted = msgspec.convert(data["step"], NewStep)
    session = Session(command)
    session.interrupts.handler = session._interrupted
    created = session.create(data["job_id"], wanted, inside=True)
    if created is not None:
        session.await_step(created, wanted)


LAUNCHES = {"srun": srun, "salloc": salloc, "step": step}
