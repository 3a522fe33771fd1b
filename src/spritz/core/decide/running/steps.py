"""Steps: created, signalled, attached to. Also NotifyJob, which only passes a text on.

Source: srun(1), sattach(1), scontrol(1) notify; slurm.conf(5) MaxStepCount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.access import need_control, need_owner
from spritz.core.decide.arrays import select
from spritz.core.decide.cancel import SIGKILL, parts, signal_step
from spritz.core.decide.submission.spec import check_environment, check_open_mode, check_submit_line
from spritz.core.decision import DecisionContext, Refused
from spritz.core.effects import AttachOn, NotifyOn
from spritz.core.flags import CONFIGURING
from spritz.core.job import het
from spritz.core.pending import launch
from spritz.core.step.layout import lay_out
from spritz.core.step.ports import reserved_ports
from spritz.model.commands.job import Done
from spritz.model.commands.step import CreateStep, StepCreated
from spritz.model.events.step import StepOpened
from spritz.model.ids import STEP_INTERACTIVE
from spritz.model.job.step import HetStep, Step
from spritz.model.states import JobState
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.core.state import State
    from spritz.model.commands.job import NotifyJob
    from spritz.model.commands.step import AttachStep, CreateHetStep, SignalStep
    from spritz.model.job.record import Job
    from spritz.model.job.step import StepNode, StepSpec

_ONE_COMPONENT = "Job steps that span multiple components of a heterogeneous job are not currently supported"


def create_step(context: DecisionContext, command: CreateStep) -> StepCreated:
    """Lay the step out and launch it on its nodes. For a repeated request, only return the step."""
    spec = command.spec
    # srun repeats a request whose answer was lost, for example by a restart of the controller. Its I/O key is random,
    # so it identifies the step that the first attempt created.
    existing = _made_before(context, command) if command.again and spec.io_key else None
    if existing is not None:
        return _created(existing)
    job = _running_job(context, command.job_id)
    settings = context.state.settings
    check_submit_line(settings, spec.submit_line)
    check_open_mode(spec.open_mode)
    check_environment(spec.environment)
    if not spec.interactive and job.next_step_id >= settings.max_step_count:
        raise Refused("ESLURM_STEP_LIMIT")
    live = context.state.steps.get(job.id, {})
    if spec.interactive and STEP_INTERACTIVE in live:
        raise Refused("ESLURM_DUPLICATE_STEP_ID")
    nodes = _laid_out(context, job, spec, tuple(live.values()))
    if any(len(node.task_ids) > settings.max_tasks_per_node for node in nodes):
        raise Refused("ESLURM_BAD_TASK_COUNT", hint="MaxTasksPerNode")
    names = tuple(node.allocation.node for node in nodes)
    ports = reserved_ports(context.state, spec, nodes)
    step = Step(
        job_id=job.id,
        step_id=STEP_INTERACTIVE if spec.interactive else job.next_step_id,
        spec=spec,
        uid=job.spec.uid,
        nodes=nodes,
        restart_count=job.restart_count,
        tasks=sum(len(node.task_ids) for node in nodes),
        started_at=context.now,
        running_nodes=names,
        unstarted_nodes=names,
        ports=ports,
    )
    context.record(StepOpened(at=context.now, step=step))
    for name in names:
        context.add_effect(launch(step, name))
    return _created(step)


def create_het_step(context: DecisionContext, command: CreateHetStep) -> StepCreated:
    """A step over several components: one step id and one numbering of tasks; all parts, or none."""
    leader = context.state.jobs.get(command.job_id)
    if leader is None:
        raise Refused("ESLURM_INVALID_JOB_ID")
    if not het.is_leader(leader):
        raise Refused("ESLURM_NOT_HET_JOB_LEADER" if leader.het_job_id else "ESLURM_NOT_HET_JOB")
    groups = tuple(number for number, _spec in command.parts)
    if not groups or list(groups) != sorted(set(groups)) or groups[-1] >= leader.het_size or groups[0] < 0:
        raise Refused("ESLURM_INVALID_JOB_ID", hint=f"components are numbered from 0 to {leader.het_size - 1}")
    # Components have consecutive ids, beginning with the leader's.
    jobs = [_running_job(context, leader.id + number) for number in groups]
    existing = _parts_made_before(context, command, jobs) if command.again else []
    if existing:
        return _created(*existing)
    settings = context.state.settings
    if len(groups) > 1 and "disable_hetjob_steps" in dict(settings.scheduler_parameters):
        raise Refused("ESLURM_NOT_SUPPORTED", message=_ONE_COMPONENT)
    for _number, spec in command.parts:
        check_submit_line(settings, spec.submit_line)
        check_open_mode(spec.open_mode)
        check_environment(spec.environment)
        if spec.ports is not None:
            raise Refused("ESLURM_NOT_SUPPORTED", hint="--resv-ports works only for steps of one component")
    # One id for all parts: it must be unused in every component, also in one that has run more steps of its own.
    step_id = max(component.next_step_id for component in het.members(context.state, leader))
    if step_id >= settings.max_step_count:
        raise Refused("ESLURM_STEP_LIMIT")
    # Lay out every part before the first event: a part that does not fit must leave no step of the other components
    # behind.
    laid_out = []
    for job, (_number, spec) in zip(jobs, command.parts, strict=True):
        nodes = _laid_out(context, job, spec, tuple(context.state.steps.get(job.id, {}).values()))
        if any(len(node.task_ids) > settings.max_tasks_per_node for node in nodes):
            raise Refused("ESLURM_BAD_TASK_COUNT", hint="MaxTasksPerNode")
        laid_out.append(nodes)
    steps = _het_steps(context, command, jobs, laid_out, step_id)
    for step in steps:
        context.record(StepOpened(at=context.now, step=step))
        for name in step.running_nodes:
            context.add_effect(launch(step, name))
    return _created(*steps)


def _het_steps(
    context: DecisionContext,
    command: CreateHetStep,
    jobs: Sequence[Job],
    laid_out: Sequence[Sequence[StepNode]],
    step_id: int,
) -> list[Step]:
    """The parts of the step. `laid_out`: the nodes of each part, whose tasks are numbered from 0."""
    names = tuple(node.allocation.node for nodes in laid_out for node in nodes)
    counts = tuple(len(node.task_ids) for nodes in laid_out for node in nodes)
    # Each part numbers its tasks from 0; the step numbers them on through its components, in their order.
    numbered, task = [], 0
    for nodes in laid_out:
        numbered.append(
            tuple(replace(node, task_ids=tuple(task + task_id for task_id in node.task_ids)) for node in nodes)
        )
        task += sum(len(node.task_ids) for node in nodes)
    # Only MPI servers need to know which node has which task; other steps are spared the size, which grows with the
    # tasks.
    served = any(spec.mpi != "none" for _number, spec in command.parts)
    task_ids = tuple(tuple(node.task_ids for node in nodes) for nodes in numbered) if served else ()
    groups = tuple(number for number, _spec in command.parts)
    steps, rank = [], 0
    for job, (_number, spec), part_nodes in zip(jobs, command.parts, numbered, strict=True):
        running = tuple(node.allocation.node for node in part_nodes)
        step = Step(
            job_id=job.id,
            step_id=step_id,
            spec=spec,
            uid=job.spec.uid,
            nodes=part_nodes,
            restart_count=job.restart_count,
            tasks=sum(len(node.task_ids) for node in part_nodes),
            started_at=context.now,
            running_nodes=running,
            unstarted_nodes=running,
            het=HetStep(groups=groups, names=names, task_counts=counts, node_offset=rank, task_ids=task_ids),
        )
        rank += len(part_nodes)
        steps.append(step)
    return steps


def _parts_made_before(context: DecisionContext, command: CreateHetStep, jobs: list[Job]) -> list[Step]:
    parts = []
    for job, (_number, spec) in zip(jobs, command.parts, strict=True):
        existing = _made_before(context, CreateStep(job_id=job.id, spec=spec, again=True)) if spec.io_key else None
        if existing is not None:
            parts.append(existing)
    return parts if len(parts) == len(jobs) else []


def _created(step: Step, *others: Step) -> StepCreated:
    """The reply without the environment, which the client itself has sent."""
    first, *others_told = (replace(part, spec=replace(part.spec, environment=())) for part in (step, *others))
    return StepCreated(step=first, others=tuple(others_told))


def _made_before(context: DecisionContext, command: CreateStep) -> Step | None:
    """The step that an earlier, equal request of the client created, live or ended."""
    step = step_made_by(context.state, command.job_id, command.spec.io_key)
    if step is None:
        return None
    if not context.caller.admin and context.caller.uid != step.uid:
        raise Refused("ESLURM_ACCESS_DENIED")
    return step


def step_made_by(state: State, job_id: int, io_key: str) -> Step | None:
    """The step of the job that a client with this I/O key created, live or ended a short time ago."""
    if not io_key:
        return None
    live = state.steps.get(job_id, {}).values()
    step = next((step for step in live if step.spec.io_key == io_key), None) or state.ended_steps.get(io_key)
    return step if step is not None and step.job_id == job_id else None


def _laid_out(context: DecisionContext, job: Job, spec: StepSpec, live: tuple[Step, ...]) -> tuple[StepNode, ...]:
    nodes, settings = context.state.nodes, context.state.settings
    default = _default_binding(context, job)
    try:
        return lay_out(job, spec, live, nodes.__getitem__, default, settings.pack_nodes, settings.max_tasks_per_node)
    except NotationError as error:
        raise Refused("ESLURM_BAD_DIST", hint=str(error)) from error


def _default_binding(context: DecisionContext, job: Job) -> str:
    """CpuBind of the nodes, if all agree; else of the partition; else TaskPluginParam. Source: slurm.conf(5)."""
    assert job.allocation is not None, f"job {job.id} holds nothing"
    bindings = {context.state.nodes[share.node].config.cpu_bind for share in job.allocation.nodes}
    partition = context.state.partitions.get(job.partition)
    common = bindings.pop() if len(bindings) == 1 else ""
    return common or (partition.cpu_bind if partition else "") or context.state.settings.cpu_bind


def _running_job(context: DecisionContext, job_id: int) -> Job:
    job = context.state.jobs.get(job_id)
    if job is None:
        raise Refused("ESLURM_INVALID_JOB_ID")
    need_owner(context, job)
    if job.spec.external:
        raise Refused("ESLURM_NOT_SUPPORTED", message="external jobs have no steps")
    if job.state is JobState.PENDING:
        raise Refused("ESLURM_JOB_PENDING")
    if job.state.ended:
        raise Refused("ESLURM_ALREADY_DONE")
    if job.flags & CONFIGURING:
        raise Refused("ESLURM_PROLOG_RUNNING")
    if job.state is JobState.SUSPENDED:
        raise Refused("ESLURM_JOB_SUSPENDED")
    return job


def _live_step(context: DecisionContext, job_id: int, step_id: int) -> Step:
    job = context.state.jobs.get(job_id)
    if job is None:
        raise Refused("ESLURM_INVALID_JOB_ID")
    need_control(context, job)
    step = context.state.steps.get(job_id, {}).get(step_id)
    if step is None:
        done = job.state.ended or step_id < job.next_step_id
        raise Refused("ESLURM_ALREADY_DONE" if done else "ESLURM_INVALID_JOB_ID")
    return step


def signal(context: DecisionContext, command: SignalStep) -> Done:
    """Send a signal to a step, or end it."""
    step = _live_step(context, command.job_id, command.step_id)
    ends = command.terminate or command.signal in (0, SIGKILL)
    for part in parts(context.state, step):
        signal_step(context, part, command.signal, terminate=ends)
    return Done()


def attach(context: DecisionContext, command: AttachStep) -> StepCreated:
    """Add a client for the standard I/O of a step."""
    step = _live_step(context, command.job_id, command.step_id)
    need_owner(context, context.state.jobs[command.job_id])
    whole = parts(context.state, step)
    for part in whole:
        for node in part.running_nodes:
            context.add_effect(
                AttachOn(
                    node=node,
                    job_id=part.job_id,
                    restart_count=part.restart_count,
                    step_id=part.step_id,
                    io_address=command.io_address,
                    io_key=command.io_key,
                )
            )
    return _created(*whole)


def notify(context: DecisionContext, command: NotifyJob) -> Done:
    """Write a line to the standard error of each running job that is named."""
    chosen = [selected.job for selected in select(context.state, command.target)]
    for job in chosen:
        need_owner(context, job, "ESLURM_USER_ID_MISSING")
    running = [job for job in chosen if job.state.active]
    if not running:
        raise Refused("ESLURM_DISABLED")
    for job in running:
        assert job.allocation is not None, f"job {job.id} runs nowhere"
        context.add_effect(
            NotifyOn(
                node=job.allocation.nodes[0].node,
                job_id=job.id,
                restart_count=job.restart_count,
                message=command.message,
            )
        )
    return Done()
