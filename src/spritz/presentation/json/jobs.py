"""Jobs in full: `squeue --json`, `scontrol --json show job`. Source: OpenAPI `job_info` v0.0.43."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from spritz.model.job.duties import FIELDS
from spritz.model.job.record import Hold, Job, JobSpec, suspension
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from spritz.model.states import JobFlag, JobState
from spritz.notation import dependency, tres
from spritz.notation.gres import format_indexes
from spritz.notation.hostlist import compress
from spritz.notation.ranges import format_array
from spritz.presentation.job import job_paths, job_text, job_tres
from spritz.presentation.job.job_record import standard_paths
from spritz.presentation.json.envelope import DEFAULT, cluster_name, version_of
from spritz.presentation.json.envelope import show as print_answer
from spritz.presentation.json.envelope import show_records as print_records
from spritz.presentation.json.pretty import Printer, Shared, record_of
from spritz.presentation.json.values import exit_code, moment, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from spritz.client.command.sync import Connection
    from spritz.model.job.job_filter import JobFilter
    from spritz.model.resources import GresRequest
    from spritz.presentation.json.envelope import Output

    Json = dict[str, Any]


class JobsJson:
    """`squeue --json`, with its options checked."""

    def __init__(self, version_word: str, wanted: JobFilter, output: Output, *, all_jobs: bool) -> None:
        version_of(version_word)
        self._version_word = version_word
        self._wanted = wanted
        self._output = output
        self._all = all_jobs

    def show(self, controller: Connection) -> None:
        """Request the jobs and print them."""
        self.show_all((controller,))

    def show_all(self, controllers: Iterable[Connection]) -> None:
        """Query the controllers one after the other, and print all jobs as one document."""
        now = 0.0
        request = ListJobs(filter=self._wanted, all=self._all)
        texts: list[str] = []
        records: list[Json] = []
        for controller in controllers:
            writer, cluster = _Writer(), cluster_name()
            for piece in controller.stream(request, Jobs, timeout=controller.timeout_seconds):
                now = piece.now
                if version_of(self._version_word) == DEFAULT:
                    texts += [writer.record(job, now, piece.exempt_of(job)) for job in piece.jobs]
                else:
                    records += [job_json(job, now, cluster, piece.exempt_of(job)) for job in piece.jobs]
        if version_of(self._version_word) == DEFAULT:
            _show(self._output, self._version_word, now, texts)
        else:
            _show_in_version(self._output, self._version_word, now, records)


def show_records(
    output: Output, version_word: str, now: float, jobs: list[Job], exempt_of: Callable[[Job], int | None]
) -> None:
    if version_of(version_word) == DEFAULT:
        writer = _Writer()
        _show(output, version_word, now, [writer.record(job, now, exempt_of(job)) for job in jobs])
        return
    cluster = cluster_name()
    _show_in_version(output, version_word, now, [job_json(job, now, cluster, exempt_of(job)) for job in jobs])


def _show_in_version(output: Output, version_word: str, now: float, records: list[Json]) -> None:
    body = {"jobs": records, "last_backfill": moment(0), "last_update": moment(now)}
    print_answer(output, version_word, body, "GET /slurm/jobs")


def _show(output: Output, version_word: str, now: float, records: list[str]) -> None:
    print_records(output, version_word, "jobs", records, {"last_backfill": moment(0), "last_update": moment(now)})


def state_list(job: Job) -> tuple[str, ...]:
    """The base state, then the names of flags such as COMPLETING."""
    if not job.flags:
        return (job.state.value,)
    return (job.state.value, *(flag.name or "" for flag in JobFlag if job.flags & int(flag)))


def job_json(job: Job, now: float, cluster: str = "", exempt_seconds: int | None = None) -> Json:
    """One record; the order of keys is arbitrary. `exempt_seconds`: `model.queries.job_records.Jobs.exempt_of`."""
    return {
        "cluster": cluster,
        **_identity(job),
        **_state(job),
        **_times(job, now, exempt_seconds),
        **_size(job),
        **_request(job),
        **_files(job),
        **_ABSENT,
    }


def kind_of(job: Job) -> object:
    """A key shared by jobs whose records differ only in `OWN_KEYS`; None for a running job."""
    if job.allocation is not None:
        return None
    return (_kind_of(astuple(job.spec)), job.state, job.billing, job.expected_start_at > 0 and job.expected_nodes)


def own_json(job: Job, now: float, cluster: str = "", exempt_seconds: int | None = None) -> Json:
    """The part of a record under `OWN_KEYS`."""
    return {"cluster": cluster, **_identity(job), **_state(job), **_times(job, now, exempt_seconds), **_files(job)}


class _Writer:
    """Makes records into text. The part that follows from the request is made once for each kind of request."""

    def __init__(self) -> None:
        self._cluster = cluster_name()
        self._own, self._kind = Printer(OWN_KEYS), Printer(_KIND_KEYS)
        self._kinds: dict[object, list[str]] = {}

    def record(self, job: Job, now: float, exempt_seconds: int | None = None) -> str:
        """The text of one record."""
        cluster = self._cluster
        if job.allocation is not None:
            whole = job_json(job, now, cluster, exempt_seconds)
            lines = self._own.lines(_own_values(whole)) + self._kind.lines(_kind_values(whole))
        else:
            kind = kind_of(job)
            lines_of_kind = self._kinds.get(kind)
            if lines_of_kind is None:
                if len(self._kinds) >= _KINDS_MAX:
                    self._kinds.clear()
                lines_of_kind = self._kinds[kind] = self._kind.lines(_kind_values(job_json(job, now, cluster)))
            lines = self._own.lines(_own_values(own_json(job, now, cluster, exempt_seconds))) + lines_of_kind
        return record_of([lines[place] for place in _PLACES])


def _requests(requests: tuple[GresRequest, ...]) -> str:
    return ",".join(
        f"gres/{request.name}:{request.type}:{request.count}"
        if request.type
        else f"gres/{request.name}:{request.count}"
        for request in requests
    )


def _identity(job: Job) -> Json:
    spec = job.spec
    return {
        "account": spec.account,
        "admin_comment": spec.admin_comment,
        "allocating_node": spec.submit_host,
        **_array(job),
        "batch_flag": spec.batch,
        "command": spec.command,
        "comment": spec.comment,
        "cron": spec.cron.schedule if spec.cron is not None else "",
        "extra": spec.extra,
        "licenses_allocated": job_text.licenses_held(job.state.value, spec.licenses, job.licenses),
        "group_id": spec.gid,
        "group_name": spec.group,
        "job_id": job.id,
        "name": spec.name,
        "partition": ",".join(spec.partitions) if job.state == "PENDING" and spec.partitions else job.partition,
        "qos": spec.qos,
        "submit_line": spec.submit_line,
        "system_comment": spec.system_comment,
        "user_id": spec.uid,
        "user_name": spec.user,
        "wckey": spec.wckey,
    }


def _array(job: Job) -> Json:
    tasks, limit = "", None
    if job.array is not None:
        tasks = format_array(int(job.array.pending, 16), job.array.limit, 0)
    of = job.array or job.array_of
    if of is not None and of.limit:
        limit = of.limit
    return {
        "array_job_id": number(job.array_job_id or (job.id if job.array is not None else 0)),
        "array_max_tasks": number(limit or 0),
        "array_task_id": number(job.array_task_id),
        "array_task_string": tasks,
        "het_job_id": number(job.het_job_id),
        "het_job_id_set": f"{job.het_job_id}-{job.het_job_id + job.het_size - 1}" if job.het_job_id else "",
        "het_job_offset": number(job.het_offset),
    }


def _state(job: Job) -> Json:
    spec, federated = job.spec, job.federation
    return {
        "association_id": job.association,
        "dependency": _dependency(job),
        "derived_exit_code": exit_code(job.derived_exit_status),
        "exit_code": exit_code(job.exit_status),
        "failed_node": job.failed_node,
        "federation_origin": federated.origin if federated is not None else "",
        "federation_siblings_active": federated.active if federated is not None else "",
        "federation_siblings_viable": federated.viable if federated is not None else "",
        "flags": _flags(job),
        "hold": job.hold is not Hold.NONE,
        "job_state": state_list(job),
        "nice": spec.nice,
        "priority": number(job.priority),
        "priority_by_partition": (),
        "requeue": spec.batch and spec.requeue is not False,
        "restart_cnt": job.restart_count,
        "state_description": job.reason_detail,
        "state_reason": job.reason.value,
    }


def _flags(job: Job) -> tuple[str, ...]:
    """Flags that the record knows; not those about visits by schedulers."""
    spec = job.spec
    chosen = {
        "KILL_INVALID_DEPENDENCY": spec.kill_on_invalid_dependency is True,
        "NO_KILL_INVALID_DEPENDENCY": spec.kill_on_invalid_dependency is False,
        "GRES_BINDING_ENFORCED": "enforce-binding" in spec.gres_flags,
        "SPREAD_JOB": spec.spread,
        "PREFER_MINIMUM_NODE_COUNT": spec.use_min_nodes,
        "EXACT_TASK_COUNT_REQUESTED": spec.tasks_given,
        "EXACT_CPU_COUNT_REQUESTED": spec.cpus_per_task is not None,
        "GRES_BINDING_DISABLED": "disable-binding" in spec.gres_flags,
        "ACCRUE_COUNT_CLEARED": job.started_at > 0,
        "JOB_WAS_RUNNING": job.state in (JobState.RUNNING, JobState.SUSPENDED),
        "USING_DEFAULT_ACCOUNT": not spec.account,
        "USING_DEFAULT_QOS": not spec.qos,
        "USING_DEFAULT_WCKEY": not spec.wckey,
        "DEPENDENT": bool(job.dependencies),
        "EXTERNAL_JOB": spec.external,
    }
    return tuple(name for name, holds in chosen.items() if holds)


def _billable(job: Job) -> float | None:
    """Billing by the partition's weights, or CPUs without weights; None before the start."""
    if job.allocation is None:
        return None
    return float(job.allocation.cpu_count if job.billing is None else job.billing)


def _dependency(job: Job) -> str:
    if not job.dependencies:
        return ""
    words = [
        dependency.format_one(dependency.Dependency(d.kind, d.job_id, d.task_id, d.minutes), d.state)
        for d in job.dependencies
    ]
    return ("?" if job.spec.dependency_mode == "any" else ",").join(words)


def _times(job: Job, now: float, exempt_seconds: int | None) -> Json:
    spec = job.spec
    limit = job.time_limit_minutes if job.time_limit_minutes is not None else spec.time_limit_minutes
    start = job_text.shown_start(
        now, job.state.value, job.started_at, job.ended_at, job.expected_start_at, spec.begin_at, job.eligible_at
    )
    return {
        "accrue_time": moment(job.grows_older_since),
        "deadline": moment(spec.deadline_at),
        "eligible_time": moment(job_text.shown_eligible(job.eligible_at, spec.begin_at)),
        "end_time": moment(job_text.shown_end(job.state.value, start, job.ends_at, job.ended_at, limit)),
        "last_sched_evaluation": moment(job.last_evaluated_at),
        "pre_sus_time": moment(suspension(job)[1]),
        "preempt_time": moment(job.preempted_at),
        "preemptable_time": moment(job_text.preemptable_at(job, start, exempt_seconds)),
        "resize_time": moment(0),
        "start_time": moment(start),
        "submit_time": moment(job.submitted_at),
        "suspend_time": moment(suspension(job)[0]),
        "time_limit": number(limit),
        "time_minimum": number(spec.time_min_minutes or 0),
    }


def _size(job: Job) -> Json:
    spec = job.spec
    allocation = job.allocation
    names = allocation.names if allocation is not None else ()
    return {
        "batch_host": names[0] if names and spec.batch else "",
        "cpus": number(job_tres.cpu_count(job)),
        "cpus_per_task": number(spec.cpus_per_task or 1),
        "gres_detail": _gres_detail(job),
        "billable_tres": number(_billable(job)),
        "job_resources": _resources(job),
        "job_size_str": tuple(map(str, spec.node_counts)),
        "max_cpus": number(0),
        "max_nodes": number(spec.nodes_max),
        "node_count": number(len(names) if names else spec.nodes_min),
        "nodes": compress(names),
        "tasks": number(job_tres.task_count(spec)),
        "tres_alloc_str": _tres(job_tres.allocated(job)),
        "tres_req_str": _tres(job_tres.requested(job)),
    }


def _tres(pairs: list[tuple[str, int]]) -> str:
    return tres.format(pairs)


def _gres_detail(job: Job) -> tuple[str, ...]:
    if job.allocation is None:
        return ()
    return tuple(
        ",".join(format_indexes(held.name, held.type, held.count, int(held.indexes, 16)) for held in node.gres)
        for node in job.allocation.nodes
        if node.gres
    )


def _resources(job: Job) -> Json:
    allocation = job.allocation
    if allocation is None:
        return _NO_RESOURCES
    nodes = [
        {
            "index": index,
            "name": node.node,
            "cpus": {"count": node.cpu_count, "used": node.cpu_count},
            "memory": {"used": 0, "allocated": node.memory_mib},
        }
        for index, node in enumerate(allocation.nodes)
    ]
    return Shared(
        {
            "cpus": allocation.cpu_count,
            "nodes": {
                "count": len(nodes),
                "select_type": ["RESERVED" if allocation.whole_nodes else "AVAILABLE"],
                "list": compress(allocation.names),
                "whole": allocation.whole_nodes,
                "allocation": nodes,
            },
            "threads_per_core": number(job.spec.threads_per_core),
        }
    )


_NO_RESOURCES = Shared()


def _request(job: Job) -> Json:
    spec = job.spec
    least = spec.cpus_per_node_min or (spec.tasks_per_node or 1) * (spec.cpus_per_task or 1)
    return {
        "cluster_features": spec.cluster_features,
        "container": spec.container.bundle if spec.container is not None else "",
        "contiguous": spec.contiguous,
        "delay_boot": number(spec.delay_boot_seconds or 0),
        "mcs_label": spec.mcs_label,
        "reboot": spec.reboot,
        "maximum_switch_wait_time": spec.switch_wait_seconds or 0,
        "segment_size": spec.segment or 0,
        "required_switches": spec.switches or 0,
        "core_spec": spec.core_spec if spec.core_spec is not None else 65534,
        "cores_per_socket": number(spec.cores_per_socket),
        "cpus_per_tres": f"gres/gpu:{spec.cpus_per_gpu}" if spec.cpus_per_gpu else "",
        "excluded_nodes": compress(spec.exclude),
        "features": spec.features,
        "licenses": spec.licenses,
        "mail_type": tuple(_MAIL.get(name, name) for name in spec.mail_types),
        "mail_user": spec.mail_user,
        "memory_per_cpu": number(spec.memory_mib_per_cpu),
        "memory_per_node": number(None if spec.memory_mib_per_cpu else spec.memory_mib_per_node or 0),
        "memory_per_tres": f"gres/gpu:{spec.memory_mib_per_gpu}" if spec.memory_mib_per_gpu else "",
        "minimum_cpus_per_node": number(least),
        "minimum_tmp_disk_per_node": number(spec.tmp_mib),
        "prefer": spec.prefer,
        "required_nodes": compress(spec.node_list),
        "resv_name": job.reservation,
        "scheduled_nodes": compress(job.expected_nodes) if job.state == "PENDING" and job.expected_start_at else "",
        "shared": _SHARED.get(spec.sharing.value, ()),
        "sockets_per_node": number(spec.sockets_per_node),
        **_per_part(spec),
        "threads_per_core": number(spec.threads_per_core),
        "tres_bind": f"gres/gpu:{spec.gpu_bind}" if spec.gpu_bind else "",
        "tres_per_job": _requests(spec.gpus),
        "tres_per_node": _requests((*spec.gpus_per_node, *spec.gres_per_node)),
        "tres_per_socket": _requests(spec.gpus_per_socket),
        "tres_per_task": _requests((*spec.gpus_per_task, *spec.gres_per_task)),
    }


_MAIL = {
    "INVALID_DEPEND": "INVALID_DEPENDENCY",
    "TIME_LIMIT": "TIME=100%",
    "TIME_LIMIT_90": "TIME=90%",
    "TIME_LIMIT_80": "TIME=80%",
    "TIME_LIMIT_50": "TIME=50%",
}
_SHARED = {
    "exclusive": ("none",),
    "user": ("user",),
    "mcs": ("mcs",),
    "topo": ("topo",),
    "oversubscribe": ("oversubscribe",),
}


def _per_part(spec: JobSpec) -> Json:
    return {
        "tasks_per_board": number(0),
        "tasks_per_core": number(spec.tasks_per_core),
        "tasks_per_node": number(spec.tasks_per_node or 0),
        "tasks_per_socket": number(spec.tasks_per_socket),
        "tasks_per_tres": number(spec.tasks_per_gpu or 0),
    }


def _files(job: Job) -> Json:
    spec = job.spec
    names = {"current_working_directory": spec.work_dir}
    if not spec.batch:
        return {**names, **_NO_FILES}
    default = job_paths.default_output(bool(job.array_job_id or job.array is not None))
    output = job_paths.file_pattern(spec.stdout, spec.work_dir, default=default)
    error_full, input_full, output_full = standard_paths(job)
    return {
        **names,
        "standard_error": job_paths.file_pattern(spec.stderr, spec.work_dir, default=output),
        "standard_input": job_paths.file_pattern(spec.stdin, spec.work_dir, default="/dev/null"),
        "standard_output": output,
        "stderr_expanded": error_full,
        "stdin_expanded": input_full,
        "stdout_expanded": output_full,
    }


_NO_FILES: Json = dict.fromkeys(
    ("standard_error", "standard_input", "standard_output", "stderr_expanded", "stdin_expanded", "stdout_expanded"), ""
)


#: values for features that Spritz does not have
_ABSENT: Json = {
    "batch_features": "",
    "burst_buffer": "",
    "burst_buffer_state": "",
    "container_id": "",
    "cpu_frequency_governor": number(None),
    "cpu_frequency_maximum": number(None),
    "cpu_frequency_minimum": number(None),
    "network": "",
    "power": Shared({"flags": []}),
    "profile": ("NOT_SET",),
    "selinux_context": "",
    "sockets_per_board": 0,
    "thread_spec": 32766,
    "tres_freq": "",
}

_ANY = Job(id=0, spec=JobSpec())
#: keys of a record, the same for all: those that a kind of request shares, and the others
_KIND_KEYS = tuple(sorted({**_size(_ANY), **_request(_ANY), **_ABSENT}))
OWN_KEYS = tuple(sorted(job_json(_ANY, 0.0).keys() - set(_KIND_KEYS)))
_kind_values, _own_values = itemgetter(*_KIND_KEYS), itemgetter(*OWN_KEYS)
#: positions of `OWN_KEYS` and then `_KIND_KEYS` in alphabetical order
_PLACES = tuple(sorted(range(len(OWN_KEYS + _KIND_KEYS)), key=(OWN_KEYS + _KIND_KEYS).__getitem__))

#: Request fields that differ from job to job. `_size` and `_request` use none of them (a test checks that).
DIFFERENT = frozenset(name for name, duty in FIELDS.items() if duty.own)
_kind_of = itemgetter(*(place for place, name in enumerate(JobSpec.__struct_fields__) if name not in DIFFERENT))
_KINDS_MAX = 1000
