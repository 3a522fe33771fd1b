"""Requests of users about jobs: sbatch, scancel, scontrol."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from spritz.cli import sbatch
from spritz.cli.jobs.submit import announce
from spritz.client.command.sync import connect_controller, submit_key
from spritz.client.errors import ClientError, RemoteError
from spritz.model.commands.job import (
    CancelJobs,
    CancelResult,
    Done,
    HoldJob,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SubmitHetJob,
    SubmitJob,
    SuspendJob,
    TopJob,
    UpdateJob,
    WillRun,
)
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Dependency, EndSignal, JobSpec, Sharing
from spritz.model.resources import GresRequest, mask_ids
from spritz_testing.daemons.history import Outcome
from spritz_testing.daemons.site import HIGH_NODES_MAX, TIERS
from spritz_testing.daemons.system.threads import sleep
from spritz_testing.daemons.wanted import Change, Condition, Wanted
from spritz_testing.daemons.workloads.workload import NewJob

if TYPE_CHECKING:
    from spritz_testing.daemons.clients.command import Command, Data


#: Seconds until an administrator tries again to resume a job.
_RESUME_AGAIN_SECONDS = 30.0


def new_job(data: Data) -> NewJob:
    """The job of an action."""
    return msgspec.convert(data["wanted"], NewJob)


def wanted_of(command: Command, job: NewJob) -> Wanted:
    """The job as the checks read it. Raises Skipped for a tag that the user does not know."""
    spec = spec_of(command, job)
    scale = command.users.site.scale
    parts = (job, *job.components)
    nodes_min = sum(part.nodes_min for part in parts)
    return Wanted(
        tag=job.tag,
        name=spec.name,
        account=job.account,
        qos=job.qos,
        partition=job.partition or "main",
        batch=spec.batch,
        script=job.script,
        environment=dict(variable.split("=", 1) for variable in job.environment),
        hold=job.held,
        begin_at=job.begin_at,
        deadline_at=job.deadline_at,
        time_limit_minutes=job.time_limit_minutes,
        time_min_minutes=job.time_min_minutes,
        end_signal=job.end_signal,
        dependencies=tuple(
            Condition(kind=one.kind, job_id=one.job_id, minutes=one.minutes) for one in spec.dependencies
        ),
        dependency_mode=job.dependency_mode,
        array_tasks=tuple(tasks_of(job.array)),
        array_limit=job.throttle,
        het_size=len(parts) if job.components else 0,
        licenses=spec.licenses,
        reservation=job.reservation,
        sharing=spec.sharing.value if job.exclusive else "",
        requeue=job.requeue is not False,
        nice=job.nice,
        tier=max(TIERS[name] for name in (job.partition or "main").split(",")),
        nodes_min=nodes_min,
        never_fits=nodes_min > scale.nodes
        or any(part.partition == "high" and max(part.nodes_min, part.nodes_max) > HIGH_NODES_MAX for part in parts),
    )


def tasks_of(array: str) -> list[int]:
    """Numbers of the tasks of `0-9:2,12`."""
    numbers: list[int] = []
    for part in array.split(",") if array else ():
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        numbers += range(int(first), int(last or first) + 1, int(step or 1))
    return numbers


def _gpus(count: int) -> tuple[GresRequest, ...]:
    return (GresRequest("gpu", "", count),) if count else ()


def spec_of(command: Command, wanted: NewJob) -> JobSpec:
    """The request as the command line's parser would make it. Raises Skipped for a tag that the user does not know."""
    batch = wanted.kind == "batch"
    signal = wanted.end_signal
    return JobSpec(
        name=wanted.name or wanted.tag,
        comment=wanted.tag,
        account=wanted.account,
        qos=wanted.qos,
        partitions=tuple(wanted.partition.split(",")) if wanted.partition else (),
        reservation=wanted.reservation,
        nodes_min=wanted.nodes_min,
        nodes_max=wanted.nodes_max or wanted.nodes_min,
        nodes_given=True,
        tasks=wanted.tasks,
        tasks_given=True,
        cpus_per_task=wanted.cpus_per_task,
        memory_mib_per_node=wanted.memory_mib_per_node or None,
        memory_mib_per_cpu=wanted.memory_mib_per_cpu or None,
        gpus=_gpus(wanted.gpus),
        gpus_per_node=_gpus(wanted.gpus_per_node),
        gpus_per_task=_gpus(wanted.gpus_per_task),
        licenses=",".join(f"{name}:{count}" for name, count in wanted.licenses.items()),
        sharing=Sharing.EXCLUSIVE if wanted.exclusive else Sharing.OVERSUBSCRIBE if wanted.shares else Sharing.DEFAULT,
        time_limit_minutes=wanted.time_limit_minutes,
        time_min_minutes=wanted.time_min_minutes,
        begin_at=wanted.begin_at,
        deadline_at=wanted.deadline_at,
        end_signal=signal and EndSignal(signal=signal[0], seconds=signal[1], batch=signal[2]),
        dependencies=tuple(
            Dependency(kind=one.kind, job_id=command.users.job_id(one.tag) if one.tag else 0, minutes=one.minutes)
            for one in wanted.dependencies
        ),
        dependency_mode=wanted.dependency_mode,
        kill_on_invalid_dependency=wanted.kill_on_invalid_dependency or None,
        array=wanted.array + (f"%{wanted.throttle}" if wanted.throttle else ""),
        hold=wanted.held,
        nice=wanted.nice,
        requeue=wanted.requeue,
        batch=batch,
        interactive=not batch,
        command=f"/home/{command.user}/{wanted.tag}.sh",
        work_dir=f"/home/{command.user}",
    )


def submission(command: Command, wanted: NewJob) -> SubmitJob | SubmitHetJob:
    """The request for a job, with a key. Raises Skipped."""
    parts = [
        SubmitJob(
            spec=spec_of(command, part),
            script=part.script.encode(),
            environment=tuple(variable.encode() for variable in part.environment),
            submit_key="" if number else submit_key(),
        )
        for number, part in enumerate((wanted, *wanted.components))
    ]
    return SubmitHetJob(components=tuple(parts)) if wanted.components else parts[0]


def submit(command: Command, data: Data) -> None:
    """sbatch."""
    wanted = new_job(data)
    request = submission(command, wanted)
    operation = command.called("submit", wanted=wanted_of(command, wanted))
    if wanted.steps:
        command.users.expect_script(wanted)
    try:
        with command.connected(operation) as controller:
            reply = sbatch._answer(controller, request)
    except ClientError as error:
        if operation.outcome is Outcome.UNKNOWN:
            command.failed(operation, error)
        raise
    command.users.jobs[wanted.tag] = reply.job_id
    command.done(operation, job_id=reply.job_id)
    if data.get("wait"):
        await_end(command, reply.job_id)


def await_end(command: Command, job_id: int) -> None:
    """sbatch --wait."""
    operation = command.called("await_end", job_id=job_id)
    try:
        status = announce.await_end(job_id)
    except ClientError as error:
        command.failed(operation, error)
        raise
    command.done(operation, status)


def test_only(command: Command, data: Data) -> None:
    """sbatch --test-only: tells when the job could start, and changes nothing."""
    request = submission(command, new_job(data))
    command.world.count("asked test_only")
    with connect_controller() as controller, contextlib.suppress(RemoteError):
        if isinstance(request, SubmitHetJob):
            first, *others = request.components
            controller.call(SubmitHetJob(components=(replace(first, test_only=True), *others)), WillRun)
        else:
            controller.call(replace(request, test_only=True), WillRun)


def _target(command: Command, data: Data) -> JobTarget:
    return JobTarget(command.users.job_id(data["tag"]), data.get("tasks", ""), component=data.get("component"))


def _change(data: Data) -> Change:
    """The change as the checks read it."""
    mask = int(data.get("tasks", "") or "0", 16)
    fields = data.get("changes", {})
    return Change(tasks=tuple(mask_ids(mask)), fields=fields, hold=data.get("hold", False))


def _refusal(result: CancelResult) -> str:
    """The code of a cancellation that was refused for every job that it named."""
    codes = [outcome.code for outcome in result.outcomes]
    return codes[0] if codes and all(codes) else ""


def cancel(command: Command, data: Data) -> None:
    """scancel, also with a signal."""
    target = _target(command, data)
    number = data.get("signal", 0)
    request = CancelJobs(filter=JobFilter(targets=(target,)), signal=number, batch=data.get("batch", False))
    kind = "signal" if number not in (0, 9) else "cancel"
    command.ask(kind, request, CancelResult, job_id=target.job_id, wanted=_change(data), verdict=_refusal)


def hold(command: Command, data: Data) -> None:
    target = _target(command, data)
    by_user = data.get("by_user", True)
    command.ask("hold", HoldJob(target=target, by_user=by_user), Done, job_id=target.job_id, wanted=_change(data))


def release(command: Command, data: Data) -> None:
    target = _target(command, data)
    command.ask("release", ReleaseJob(target=target), Done, job_id=target.job_id, wanted=_change(data))


def update(command: Command, data: Data) -> None:
    """scontrol update: `data["changes"]` as UpdateJob takes them."""
    target = _target(command, data)
    request = UpdateJob(target=target, changes=data["changes"])
    command.ask("update", request, Done, job_id=target.job_id, wanted=_change(data))


def suspend(command: Command, data: Data) -> None:
    target = _target(command, data)
    command.ask("suspend", SuspendJob(target=target), Done, job_id=target.job_id, wanted=_change(data))


def resume(command: Command, data: Data) -> None:
    """scontrol resume, again and again while other jobs have the CPUs or the controller does not answer."""
    target = _target(command, data)
    while True:
        try:
            command.ask("resume", ResumeJob(target=target), Done, job_id=target.job_id, wanted=_change(data))
        except ClientError as error:
            if isinstance(error, RemoteError) and error.code != "ESLURM_NODES_BUSY":
                raise
            sleep(_RESUME_AGAIN_SECONDS)
        else:
            return


def requeue(command: Command, data: Data) -> None:
    target = _target(command, data)
    request = RequeueJob(target=target, hold=data.get("hold", False))
    command.ask("requeue", request, Done, job_id=target.job_id, wanted=_change(data))


def top(command: Command, data: Data) -> None:
    """`data["more"]`: tags of further jobs; for the checks the request is then about none in particular."""
    target = _target(command, data)
    more = tuple(JobTarget(command.users.job_id(tag)) for tag in data.get("more", ()))
    request = TopJob(targets=(target, *more))
    command.ask("top", request, Done, job_id=0 if more else target.job_id, wanted=_change(data))


REQUESTS = {
    "submit": submit,
    "test_only": test_only,
    "cancel": cancel,
    "hold": hold,
    "release": release,
    "update": update,
    "suspend": suspend,
    "resume": resume,
    "requeue": requeue,
    "top": top,
}
