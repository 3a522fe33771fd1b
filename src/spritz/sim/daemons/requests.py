"""Requests of users about jobs: sbatch, scancel, scontrol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from spritz.cli import sbatch
from spritz.client.errors import ClientError
from spritz.client.sync import connect_controller, submit_key
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
)
from spritz.model.job import Dependency, EndSignal, JobSpec, Sharing
from spritz.model.job_filter import JobFilter, JobTarget
from spritz.model.resources import GresRequest
from spritz.sim.daemons.workload import Wanted

if TYPE_CHECKING:
    from spritz.sim.daemons.command import Command, Data


def wanted_of(data: Data) -> Wanted:
    return msgspec.convert(data["wanted"], Wanted)


def _gpus(count: int) -> tuple[GresRequest, ...]:
    return (GresRequest("gpu", "", count),) if count else ()


def spec_of(command: Command, wanted: Wanted) -> JobSpec:
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


def submission(command: Command, wanted: Wanted) -> SubmitJob | SubmitHetJob:
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
    wanted = wanted_of(data)
    request = submission(command, wanted)
    operation = command.called("submit", wanted=wanted)
    if wanted.steps:
        command.users.expect_script(wanted)
    try:
        with connect_controller() as controller:
            reply = sbatch._answer(controller, request)
    except ClientError as error:
        command.failed(operation, error)
        raise
    command.users.jobs[wanted.tag] = reply.job_id
    command.done(operation, job_id=reply.job_id)


def _target(command: Command, data: Data) -> JobTarget:
    return JobTarget(command.users.job_id(data["tag"]), data.get("tasks", ""), component=data.get("component"))


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
    command.ask(kind, request, CancelResult, job_id=target.job_id, wanted=data, verdict=_refusal)


def cancel_all(command: Command, data: Data) -> None:
    """scancel -u USER."""
    request = CancelJobs(filter=JobFilter(users=(command.uid,), names=tuple(data.get("names", ()))))
    command.ask("cancel_all", request, CancelResult, wanted=data)


def hold(command: Command, data: Data) -> None:
    target = _target(command, data)
    by_user = data.get("by_user", True)
    command.ask("hold", HoldJob(target=target, by_user=by_user), Done, job_id=target.job_id, wanted=data)


def release(command: Command, data: Data) -> None:
    target = _target(command, data)
    command.ask("release", ReleaseJob(target=target), Done, job_id=target.job_id, wanted=data)


def update(command: Command, data: Data) -> None:
    """scontrol update: `data["changes"]` as UpdateJob takes them."""
    target = _target(command, data)
    request = UpdateJob(target=target, changes=data["changes"])
    command.ask("update", request, Done, job_id=target.job_id, wanted=data)


def suspend(command: Command, data: Data) -> None:
    target = _target(command, data)
    command.ask("suspend", SuspendJob(target=target), Done, job_id=target.job_id, wanted=data)


def resume(command: Command, data: Data) -> None:
    target = _target(command, data)
    command.ask("resume", ResumeJob(target=target), Done, job_id=target.job_id, wanted=data)


def requeue(command: Command, data: Data) -> None:
    target = _target(command, data)
    request = RequeueJob(target=target, hold=data.get("hold", False))
    command.ask("requeue", request, Done, job_id=target.job_id, wanted=data)


def top(command: Command, data: Data) -> None:
    target = _target(command, data)
    command.ask("top", TopJob(targets=(target,)), Done, job_id=target.job_id, wanted=data)


REQUESTS = {
    "submit": submit,
    "cancel": cancel,
    "cancel_all": cancel_all,
    "hold": hold,
    "release": release,
    "update": update,
    "suspend": suspend,
    "resume": resume,
    "requeue": requeue,
    "top": top,
}
