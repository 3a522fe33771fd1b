"""A job's full record as `scontrol show job` writes it, keys in Slurm's order.

Source: scontrol(1) show job; order and texts of 22.05 with the changes of 25.05 (ReqTRES and AllocTRES, LicensesAlloc,
`gres/gpu:1`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.job.record import suspension
from spritz.notation import dependency
from spritz.notation.duration import format_duration, format_minutes
from spritz.notation.gres import format_indexes
from spritz.notation.memory import format_mib
from spritz.notation.ranges import format_array, format_ids
from spritz.presentation.job import job_paths, job_text, job_tres
from spritz.presentation.record import NULL, hosts, join, moment, one_or_zero, or_null

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.job.record import Job
    from spritz.model.resources import GresAllocation, GresRequest


#: default of SchedulerParameters=max_switch_wait, seconds, for jobs without a time of their own
_SWITCH_WAIT = 300


def record_text(
    job: Job, now: float, oneliner: bool = False, details: int = 0, exempt_seconds: int | None = None
) -> str:
    """A job's record. `exempt_seconds`: see `model.queries.job_records.Jobs`."""
    lines = [
        *_identity(job),
        *_state(job, details),
        *_times(job, now, exempt_seconds),
        *_place(job),
        *_size(job, details),
        *_request(job),
        *_files(job),
        *_more(job),
        *_siblings(job),
        "",  # Slurm starts an empty line here
    ]
    return join(lines, oneliner)


def _identity(job: Job) -> list[str]:
    spec = job.spec
    first = f"JobId={job.id} "
    if job.array_job_id or job.array is not None:
        first += f"ArrayJobId={job.array_job_id or job.id} ArrayTaskId={_array_tasks(job)} "
        of = job.array or job.array_of
        if of is not None and of.limit:
            first += f"ArrayTaskThrottle={of.limit} "
    if job.het_job_id:
        first += f"HetJobId={job.het_job_id} HetJobOffset={job.het_offset} "
    last = job.het_job_id + job.het_size - 1
    return [
        f"{first}JobName={spec.name}",
        *([f"HetJobIdSet={job.het_job_id}-{last}"] if job.het_job_id else []),
        f"UserId={spec.user or spec.uid}({spec.uid}) GroupId={spec.group or spec.gid}({spec.gid}) "
        f"MCS_label={spec.mcs_label or 'N/A'}",
        f"Priority={job.priority} Nice={spec.nice} Account={or_null(spec.account)} QOS={or_null(spec.qos)}",
    ]


def _siblings(job: Job) -> list[str]:
    federated = job.federation
    if federated is None:
        return []
    viable, active = or_null(federated.viable), or_null(federated.active)
    return [f"FedOrigin={federated.origin} FedViableSiblings={viable} FedActiveSiblings={active}"]


def _array_tasks(job: Job) -> str:
    if job.array is not None:
        return format_array(int(job.array.pending, 16), job.array.limit, 0)
    return "N/A" if job.array_task_id is None else str(job.array_task_id)


def _exit(status: int) -> str:
    return f"{status >> 8}:{status & 0x7F}"


def _state(job: Job, details: int) -> list[str]:
    spec = job.spec
    requeue = spec.batch and spec.requeue is not False
    dependency = _dependency(job)
    lines = [
        f"JobState={job_text.state_name(job.state.value, job.flags)} "
        f"Reason={job_text.reason_word(job.reason.value, job.reason_detail)} Dependency={dependency}",
        f"Requeue={one_or_zero(requeue)} Restarts={job.restart_count} BatchFlag={one_or_zero(spec.batch)} "
        f"Reboot={one_or_zero(spec.reboot)} "
        f"ExitCode={_exit(job.exit_status)}",
    ]
    if details:
        lines.append(f"DerivedExitCode={_exit(job.derived_exit_status)}")
    return lines


def _dependency(job: Job) -> str:
    words = [
        dependency.format_one(dependency.Dependency(d.kind, d.job_id, d.task_id, d.minutes), d.state)
        for d in job.dependencies
    ]
    return ("?" if job.spec.dependency_mode == "any" else ",").join(words) or NULL


def limit_minutes(job: Job) -> int:
    """The granted limit, or the requested one."""
    if job.time_limit_minutes is not None:
        return job.time_limit_minutes
    return INFINITE if job.spec.time_limit_minutes is None else job.spec.time_limit_minutes


def _times(job: Job, now: float, exempt_seconds: int | None) -> list[str]:
    spec = job.spec
    used = job_text.used_seconds(
        now, job.state.value, job.started_at, job.ended_at, job.suspended_seconds, job.suspended_at
    )
    minimum = "N/A" if spec.time_min_minutes is None else format_minutes(spec.time_min_minutes)
    state, limit = job.state.value, limit_minutes(job)
    start = job_text.shown_start(
        now, state, job.started_at, job.ended_at, job.expected_start_at, spec.begin_at, job.eligible_at
    )
    end = job_text.shown_end(state, start, job.ends_at, job.ended_at, limit)
    eligible = job_text.shown_eligible(job.eligible_at, spec.begin_at)
    suspended, before = suspension(job)
    by = "Backfill" if job.scheduler == "Backfill" else "Main"
    preempted = []
    if preemptable := job_text.preemptable_at(job, start, exempt_seconds):
        preempted.append(f"PreemptEligibleTime={moment(preemptable)} PreemptTime={moment(job.preempted_at, 'None')}")
    return [
        f"RunTime={format_duration(used)} TimeLimit={format_minutes(limit)} TimeMin={minimum}",
        f"SubmitTime={moment(job.submitted_at)} EligibleTime={moment(eligible)}",
        f"AccrueTime={moment(job.grows_older_since)}",
        f"StartTime={moment(start)} EndTime={moment(end)} Deadline={moment(spec.deadline_at, 'N/A')}",
        *([f'CronJob=Yes CrontabSpec="{spec.cron.schedule}"'] if spec.cron is not None else []),
        *preempted,
        f"SuspendTime={moment(suspended, 'None')} SecsPreSuspend={before} "
        f"LastSchedEval={moment(job.last_evaluated_at)} Scheduler={by}",
    ]


def _place(job: Job) -> list[str]:
    spec = job.spec
    pending = job.state.value == "PENDING"
    partition = ",".join(spec.partitions) if pending and spec.partitions else job.partition
    allocation = job.allocation
    names = allocation.names if allocation is not None else ()
    lines = [
        f"Partition={partition} AllocNode:Sid={spec.submit_host}:{spec.submit_session}",
        f"ReqNodeList={or_null(hosts(spec.node_list))} ExcNodeList={or_null(hosts(spec.exclude))}",
        f"NodeList={hosts(names)}",
    ]
    if names:
        lines.append(f"BatchHost={names[0]}")
    if job.expected_nodes and job.expected_start_at and pending:
        lines.append(f"SchedNodeList={hosts(job.expected_nodes)}")
    return lines


def _star(count: int | None) -> str:
    return "*" if count is None else str(count)


def _size(job: Job, details: int) -> list[str]:
    spec = job.spec
    if job.allocation is not None:
        nodes = str(len(job.allocation.nodes))
    elif spec.nodes_given and (spec.nodes_max or spec.nodes_min) >= spec.nodes_min:
        nodes = f"{spec.nodes_min}-{spec.nodes_max or spec.nodes_min}"
    else:
        nodes = str(spec.nodes_min)
    lines = [
        f"NumNodes={nodes} NumCPUs={job_tres.cpu_count(job)} NumTasks={job_tres.task_count(spec)} "
        f"CPUs/Task={spec.cpus_per_task or 1} "
        f"ReqB:S:C:T=0:0:{_star(spec.cores_per_socket)}:{_star(spec.threads_per_core)}",
        f"ReqTRES={job_tres.text(job_tres.requested(job))}",
        f"AllocTRES={job_tres.text(job_tres.allocated(job))}",
        f"Socks/Node={_star(spec.sockets_per_node)} NtasksPerN:B:S:C={spec.tasks_per_node or 0}:0:"
        f"{_star(spec.tasks_per_socket)}:{_star(spec.tasks_per_core)} CoreSpec={_star(spec.core_spec)}",
    ]
    return lines + (_node_lines(job) if details else [])


def _node_lines(job: Job) -> list[str]:
    """JOB_GRES, and a line for each run of nodes with the same share."""
    allocation = job.allocation
    if allocation is None:
        return []
    totals: dict[tuple[str, str], int] = {}
    runs: list[tuple[list[str], str]] = []
    for node in allocation.nodes:
        for held in node.gres:
            totals[held.name, held.type] = totals.get((held.name, held.type), 0) + held.count

        share = f"CPU_IDs={format_ids(int(node.cpus, 16))} Mem={node.memory_mib} GRES={_devices(node.gres)}"
        if runs and runs[-1][1] == share:
            runs[-1][0].append(node.node)
        else:
            runs.append(([node.node], share))
    total = ",".join(f"{name}:{kind}:{n}" if kind else f"{name}:{n}" for (name, kind), n in totals.items())
    return [f"JOB_GRES={or_null(total)}", *(f"  Nodes={hosts(names)} {share}" for names, share in runs)]


def _devices(given: Iterable[GresAllocation]) -> str:
    return ",".join(format_indexes(held.name, held.type, held.count, int(held.indexes, 16)) for held in given)


def _request(job: Job) -> list[str]:
    spec = job.spec
    cpus = job_text.least_cpus(spec.cpus_per_node_min, spec.tasks_per_node, spec.cpus_per_task)
    if spec.memory_mib_per_cpu:
        memory = f"MinMemoryCPU={format_mib(spec.memory_mib_per_cpu)}"
    else:
        memory = f"MinMemoryNode={format_mib(spec.memory_mib_per_node or 0)}"
    lines = [
        f"MinCPUsNode={cpus} {memory} MinTmpDiskNode={format_mib(spec.tmp_mib)}",
        f"Features={or_null(spec.features)} DelayBoot={format_duration(spec.delay_boot_seconds or 0)}",
    ]
    if spec.prefer:
        lines.append(f"Prefer={spec.prefer}")
    if job.reservation:
        lines.append(f"Reservation={job.reservation}")
    held = job_text.licenses_held(job.state.value, spec.licenses, job.licenses)
    lines.append(
        f"OverSubscribe={job_text.SHARING[spec.sharing.value]} Contiguous={one_or_zero(spec.contiguous)} "
        f"Licenses={or_null(spec.licenses)} LicensesAlloc={or_null(held)} Network=(null)"
    )
    return lines


def _files(job: Job) -> list[str]:
    spec = job.spec
    lines = [f"Command={or_null(spec.command)}", f"WorkDir={spec.work_dir}"]
    if spec.admin_comment:
        lines.append(f"AdminComment={spec.admin_comment} ")
    if spec.system_comment:
        lines.append(f"SystemComment={spec.system_comment} ")
    if spec.comment:
        lines.append(f"Comment={spec.comment} ")
    if spec.extra:
        lines.append(f"Extra={spec.extra}")
    if spec.batch:
        error, given, output = standard_paths(job)
        lines += [f"StdErr={error}", f"StdIn={given}", f"StdOut={output}"]
    if spec.container is not None and spec.container.bundle:
        lines.append(f"Container={spec.container.bundle}")
    return lines


def standard_paths(job: Job) -> tuple[str, str, str]:
    """Paths of error, input and output with patterns expanded. Error and output are the same file by default."""
    spec = job.spec
    in_array = bool(job.array_job_id or job.array is not None)
    default = job_paths.default_output(in_array)
    output = job_paths.file_pattern(spec.stdout, spec.work_dir, default=default)
    error = job_paths.file_pattern(spec.stderr, spec.work_dir, default=output)
    stdin = job_paths.file_pattern(spec.stdin, spec.work_dir, default="/dev/null")
    first = job.allocation.names[0] if job.allocation is not None else ""

    def fill(path: str) -> str:
        return job_paths.expanded(
            path,
            job_id=job.id,
            array_job_id=job.array_job_id or (job.id if job.array is not None else 0),
            task_id=job.array_task_id,
            name=spec.name,
            user=spec.user,
            first_host=first,
            restarts=job.restart_count,
        )

    return fill(error), fill(stdin), fill(output)


def _more(job: Job) -> list[str]:
    """Fields that are shown only if they were requested."""
    spec = job.spec
    lines = []
    if spec.switches:
        wait = spec.switch_wait_seconds
        lines.append(f"Switches={spec.switches}@{format_duration(_SWITCH_WAIT if wait is None else wait)}")
    if spec.kill_on_invalid_dependency:
        lines.append("KillOInInvalidDependent=Yes")
    if spec.spread:
        lines.append("SpreadJob=Yes")
    if spec.cpus_per_gpu:
        lines.append(f"CpusPerTres=gres/gpu:{spec.cpus_per_gpu}")
    if spec.memory_mib_per_gpu:
        lines.append(f"MemPerTres=gres/gpu:{spec.memory_mib_per_gpu}")
    if spec.gpu_bind:
        lines.append(f"TresBind=gres/gpu:{spec.gpu_bind}")
    for key, requests in (
        ("TresPerJob", spec.gpus),
        ("TresPerNode", (*spec.gpus_per_node, *spec.gres_per_node)),
        ("TresPerSocket", spec.gpus_per_socket),
    ):
        if requests:
            lines.append(f"{key}={_requests(requests)}")
    per_task = [f"cpu={spec.cpus_per_task}"] if spec.cpus_per_task else []
    if spec.gpus_per_task or spec.gres_per_task:
        per_task.append(_requests((*spec.gpus_per_task, *spec.gres_per_task)))
    if per_task:
        lines.append(f"TresPerTask={','.join(per_task)}")
    if spec.mail_user or spec.mail_types:
        lines.append(f"MailUser={spec.mail_user or spec.user} MailType={','.join(spec.mail_types) or 'NONE'}")
    return lines


def _requests(requests: Iterable[GresRequest]) -> str:
    return ",".join(
        f"gres/{request.name}:{request.type}:{request.count}"
        if request.type
        else f"gres/{request.name}:{request.count}"
        for request in requests
    )
