"""Convert a job in REST's form (`job_desc_msg`) to the fields of a `JobSpec`. Source: OpenAPI; sbatch(1).

Every field of the document works, or is refused with an error that names it. Zero, false and empty texts mean "not
given", since clients send whole records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.model.ids import INFINITE
from spritz.model.job.record import ContainerOptions, Dependency, EndSignal, ResourceLimit, Sharing
from spritz.model.resources import GresRequest
from spritz.notation import dependency, gres, mail_types, memory, nodecount, signals
from spritz.notation.errors import NotationError
from spritz.notation.hostlist import expand
from spritz.notation.layout import distribution
from spritz.notation.layout.cpubind import parse_cpu_bind, parse_gpu_bind
from spritz.rest.answers import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.presentation.json.documents import Json

Fields = dict[str, Any]

#: Fields with text in both forms: REST's name -> name in JobSpec.
_TEXTS = {
    "account": "account",
    "admin_comment": "admin_comment",
    "array": "array",
    "cluster_constraint": "cluster_features",
    "comment": "comment",
    "constraints": "features",
    "current_working_directory": "work_dir",
    "extra": "extra",
    "licenses": "licenses",
    "mail_user": "mail_user",
    "mcs_label": "mcs_label",
    "name": "name",
    "prefer": "prefer",
    "qos": "qos",
    "reservation": "reservation",
    "standard_error": "stderr",
    "standard_input": "stdin",
    "standard_output": "stdout",
    "wckey": "wckey",
}
_COUNTS = {
    "cores_per_socket": "cores_per_socket",
    "cpus_per_task": "cpus_per_task",
    "delay_boot": "delay_boot_seconds",
    "minimum_cpus_per_node": "cpus_per_node_min",
    "ntasks_per_tres": "tasks_per_gpu",
    "segment_size": "segment",
    "sockets_per_node": "sockets_per_node",
    "tasks_per_core": "tasks_per_core",
    "tasks_per_node": "tasks_per_node",
    "tasks_per_socket": "tasks_per_socket",
    "temporary_disk_per_node": "tmp_mib",
    "threads_per_core": "threads_per_core",
    "required_switches": "switches",
    "wait_for_switch": "switch_wait_seconds",
}
_FLAGS = {"contiguous": "contiguous", "overcommit": "overcommit", "reboot": "reboot"}

#: Fields of unsupported features -> reason. Empty values are accepted.
_REFUSED = {
    "batch_features": "sbatch --batch is not built",
    "burst_buffer": "burst buffers are not built",
    "container_id": "only scrun sets container ids, and Spritz has no scrun",
    "container_type": "only scrun sets container types, and Spritz has no scrun",
    "cpu_frequency": "CPU frequencies are not set",
    "crontab": "use scrontab",
    "job_id": "the controller assigns job ids",
    "maximum_cpus": "a maximum number of CPUs cannot be set",
    "memory_update_delay": "memory limits are not adjusted",
    "memory_update_margin": "memory limits are not adjusted",
    "minimum_boards_per_node": "boards are not told apart",
    "minimum_sockets_per_board": "boards are not told apart",
    "network": "there is no switch plugin",
    "oom_kill_step": "each job keeps the cluster's setting",
    "reserve_ports": "ports are not reserved",
    "selinux_context": "SELinux contexts are not set",
    "site_factor": "there is no site factor plugin",
    "spank_environment": "SPANK is not built",
    "tasks_per_board": "boards are not told apart",
    "thread_specification": "use core_specification",
    "tres_freq": "GPU frequencies are not set",
    "x11": "X11 forwarding is not built",
    "x11_magic_cookie": "X11 forwarding is not built",
    "x11_target_host": "X11 forwarding is not built",
}
#: Ignored fields: the address of a client that waits, derived values, and flags of v0.0.42 without a meaning.
_IGNORED = (
    "power_flags",
    "allocation_node_list",
    "allocation_node_port",
    "hetjob_group",
    "step_id",
    "x11_target_port",
    "end_time",
)

#: Values that mean "not set" in 16-bit and 32-bit fields.
_NOT_GIVEN = frozenset({0xFFFE, 0xFFFFFFFE, 0xFFFFFFFFFFFFFFFE})


def fields_of(desc: Json, *, update: bool = False) -> Fields:
    """The fields of JobSpec that `desc` sets. `update`: for a change of an existing job.

    Raises Refused, naming the field.
    """
    fields: Fields = {}
    for name, value in desc.items():
        if name in _HANDLED or name in _IGNORED or value is None:
            continue
        if name in _REFUSED:
            if _says_something(value):
                raise bad(name, f"not supported by Spritz: {_REFUSED[name]}", code="ESLURM_NOT_SUPPORTED")
        elif name in _TEXTS:
            if value or update:
                fields[_TEXTS[name]] = value
        elif name in _COUNTS:
            if value and value not in _NOT_GIVEN:
                fields[_COUNTS[name]] = _count(name, value)
        elif name in _FLAGS:
            if value or update:
                fields[_FLAGS[name]] = value
        else:
            try:
                _OTHERS[name](fields, value)
            except NotationError as error:
                raise bad(name, str(error)) from error
    _nodes(fields, desc)
    _memory(fields, desc)
    _signal(fields, desc)
    return fields


def bad(name: str, why: str, code: str = "ESLURM_REST_FAIL_PARSING") -> Refused:
    """The error for a field's value."""
    return Refused(code, f"{name}: {why}", name)


def _says_something(value: Any) -> bool:
    return bool(value) and not (isinstance(value, int) and value in _NOT_GIVEN)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or not 0 < value < _MOST:
        raise bad(name, f"{value} is out of range")
    return value


_MOST = 0xFFFFFFFE


def _requests(text: str) -> tuple[GresRequest, ...]:
    return tuple(GresRequest(request.name, request.type or "", request.count) for request in gres.parse(text))


def _gpus(name: str, text: str) -> tuple[GresRequest, ...]:
    gpus = _requests(text)
    if any(request.name != "gpu" for request in gpus):
        raise bad(name, "only gres/gpu is supported by Spritz here", code="ESLURM_INVALID_GRES")
    return gpus


def _container(fields: Fields, bundle: str) -> None:
    if bundle:
        fields["container"] = ContainerOptions(bundle=bundle)


def _per_node(fields: Fields, text: str) -> None:
    if text:
        fields["gres_per_node"] = _requests(text)


def _of_gpus(name: str, field: str) -> Callable[[Fields, Any], None]:
    def put(fields: Fields, text: Any) -> None:
        if text:
            fields[field] = _gpus(name, text)

    return put


def _per_task(fields: Fields, text: str) -> None:
    words = [word for word in text.split(",") if word]
    cpus = [word for word in words if word.lower().startswith(("cpu=", "cpu:"))]
    others = [word for word in words if word not in cpus]
    requests = _requests(",".join(others)) if others else ()
    if others:
        fields["gpus_per_task"] = tuple(request for request in requests if request.name == "gpu")
        fields["gres_per_task"] = tuple(request for request in requests if request.name != "gpu")
    if cpus:
        fields["cpus_per_task"] = nodecount.parse_count(cpus[-1][4:], "cpu")


def _per_gpu(name: str, field: str) -> Callable[[Fields, Any], None]:
    def put(fields: Fields, text: Any) -> None:
        if not text:
            return
        gpus = _gpus(name, text)
        if len(gpus) != 1 or gpus[0].type:
            raise bad(name, "gres/gpu:COUNT is accepted")
        fields[field] = gpus[0].count

    return put


def _memory_per_gpu(fields: Fields, text: str) -> None:
    if text:
        _, _, size = text.rpartition(":")
        if not text.removeprefix("gres/").startswith("gpu"):
            raise bad("memory_per_tres", "gres/gpu:SIZE is accepted")
        fields["memory_mib_per_gpu"] = memory.parse_mib(size)


def _binding(fields: Fields, text: str) -> None:
    if text:
        kind, _, bind = text.removeprefix("gres/").partition(":")
        if kind != "gpu":
            raise bad("tres_bind", "only GPUs are bound to tasks")
        parse_gpu_bind(bind)
        fields["gpu_bind"] = bind


def _cpu_binding(fields: Fields, text: str) -> None:
    if text:
        parse_cpu_bind(text)
        fields["cpu_bind"] = text


def _memory_binding(fields: Fields, text: str) -> None:
    if text and text.lower() not in ("none", "verbose", "v"):
        raise bad(
            "memory_binding", "not supported by Spritz: memory is not bound to NUMA nodes", "ESLURM_NOT_SUPPORTED"
        )


def _memory_binding_type(fields: Fields, words: list[str]) -> None:
    if set(words) - {"NONE", "VERBOSE"}:
        raise bad("memory_binding_type", "not supported by Spritz: memory is not bound", "ESLURM_NOT_SUPPORTED")


def _dependencies(fields: Fields, text: str) -> None:
    parsed, mode = dependency.parse(text) if text else ((), "all")
    fields["dependencies"] = tuple(
        Dependency(kind=item.kind, job_id=item.job_id, task_id=item.task_id, minutes=item.minutes) for item in parsed
    )
    fields["dependency_mode"] = mode


def _distribution(fields: Fields, text: str) -> None:
    if text:
        distribution.parse(text)
        fields["distribution"] = text


def _plane(fields: Fields, size: Any) -> None:
    if _says_something(size):
        fields["distribution"] = f"plane={_count('distribution_plane_size', size)}"


def _mail(fields: Fields, words: list[str]) -> None:
    percent = {"TIME=100%": "TIME_LIMIT", "TIME=90%": "TIME_LIMIT_90", "TIME=80%": "TIME_LIMIT_80"}
    percent |= {"TIME=50%": "TIME_LIMIT_50", "INVALID_DEPENDENCY": "INVALID_DEPEND"}
    if words:
        fields["mail_types"] = mail_types.parse(",".join(percent.get(word, word) for word in words)) or ()


def _sharing(fields: Fields, words: list[str]) -> None:
    chosen = {
        "none": Sharing.EXCLUSIVE,
        "user": Sharing.USER,
        "mcs": Sharing.MCS,
        "topo": Sharing.TOPO,
        "oversubscribe": Sharing.OVERSUBSCRIBE,
    }
    for word in words:
        fields["sharing"] = chosen[word]


def _request_flags(fields: Fields, words: list[str]) -> None:
    gres_flags = []
    for word in words:
        if word == "KILL_INVALID_DEPENDENCY":
            fields["kill_on_invalid_dependency"] = True
        elif word == "NO_KILL_INVALID_DEPENDENCY":
            fields["kill_on_invalid_dependency"] = False
        elif word == "SPREAD_JOB":
            fields["spread"] = True
        elif word == "SPREAD_SEGMENTS":
            fields["spread_segments"] = True
        elif word == "PREFER_MINIMUM_NODE_COUNT":
            fields["use_min_nodes"] = True
        elif word == "EXPEDITED_REQUEUE":
            fields["expedite"] = fields["requeue"] = True
        elif word == "GRES_BINDING_ENFORCED":
            gres_flags.append("enforce-binding")
        elif word == "GRES_BINDING_DISABLED":
            gres_flags.append("disable-binding")
        elif word == "EXTERNAL_JOB":
            fields["external"] = True
        elif word in ("CRON_JOB", "STEPMGR_ENABLED"):
            raise bad("flags", f"{word} is not supported by Spritz", "ESLURM_NOT_SUPPORTED")
        # Ignore flags about a job's state, which clients return when they send a whole record back.
    if gres_flags:
        fields["gres_flags"] = tuple(gres_flags)


def _minutes(field: str) -> Callable[[Fields, Any], None]:
    def put(fields: Fields, value: Any) -> None:
        if value is None or value in _NOT_GIVEN or value == 0:
            return
        if not 0 < value <= INFINITE:
            raise bad(field, f"{value} is out of range")
        fields[field] = int(value)

    return put


def _moment(field: str) -> Callable[[Fields, Any], None]:
    def put(fields: Fields, value: Any) -> None:
        if value and value not in _NOT_GIVEN:
            if not 0 < value < 1 << 40:
                raise bad(field, f"{value} is not a time")
            fields[field] = float(value)

    return put


def _tasks(fields: Fields, value: int) -> None:
    if _says_something(value):
        fields["tasks"], fields["tasks_given"] = _count("tasks", value), True


def _nice(fields: Fields, value: int) -> None:
    if not -2147483645 <= value <= 2147483645:
        raise bad("nice", f"{value} is out of range", "ESLURM_INVALID_NICE")
    fields["nice"] = value


def _priority(fields: Fields, value: Any) -> None:
    if value is not None and value not in _NOT_GIVEN:
        fields["priority"] = None if value >= INFINITE else int(value)


def _frequency(fields: Fields, text: str) -> None:
    if text:
        word = text.partition("task=")[2] or text
        if not (word.isascii() and word.isdigit() and len(word) < 8):
            raise bad("account_gather_frequency", f"{text}: task=SECONDS is accepted")
        fields["sample_seconds"] = int(word)


def _limits(fields: Fields, given: Json) -> None:
    limits = []
    for name, value in given.items():
        if value is not None:
            limits.append(ResourceLimit(name.upper(), -1 if value >= INFINITE else int(value)))
    if limits:
        fields["limits"] = tuple(limits)


def _minimum_cpus(fields: Fields, value: int) -> None:
    """Like NumCPUs: without tasks and CPUs per task, request this many tasks with a CPU each."""
    if _says_something(value) and "tasks" not in fields and "cpus_per_task" not in fields:
        fields["tasks"], fields["tasks_given"] = _count("minimum_cpus", value), True


_OTHERS: dict[str, Callable[[Fields, Any], None]] = {
    "account_gather_frequency": _frequency,
    "begin_time": _moment("begin_at"),
    "clusters": lambda fields, value: None,
    "container": _container,
    "core_specification": lambda fields, value: fields.update(core_spec=value) if _says_something(value) else None,
    "cpu_binding": _cpu_binding,
    "cpu_binding_flags": lambda fields, value: None,
    "cpus_per_tres": _per_gpu("cpus_per_tres", "cpus_per_gpu"),
    "deadline": _moment("deadline_at"),
    "dependency": _dependencies,
    "distribution": _distribution,
    "distribution_plane_size": _plane,
    "excluded_nodes": lambda fields, value: fields.update(exclude=tuple(expand(",".join(value)))),
    "flags": _request_flags,
    "hold": lambda fields, value: fields.update(hold=value),
    "immediate": lambda fields, value: None,
    "kill_on_node_fail": lambda fields, value: fields.update(no_kill=not value),
    "mail_type": _mail,
    "memory_binding": _memory_binding,
    "memory_binding_type": _memory_binding_type,
    "memory_per_tres": _memory_per_gpu,
    "minimum_cpus": _minimum_cpus,
    "nice": _nice,
    "open_mode": lambda fields, value: fields.update(open_mode=value[0][0].lower()) if value else None,
    "partition": lambda fields, value: fields.update(partitions=tuple(word for word in value.split(",") if word)),
    "priority": _priority,
    "profile": lambda fields, value: None,
    "requeue": lambda fields, value: fields.update(requeue=value),
    "required_nodes": lambda fields, value: fields.update(node_list=tuple(expand(",".join(value)))),
    "rlimits": _limits,
    "shared": _sharing,
    "tasks": _tasks,
    "time_limit": _minutes("time_limit_minutes"),
    "time_minimum": _minutes("time_min_minutes"),
    "tres_bind": _binding,
    "tres_per_job": _of_gpus("tres_per_job", "gpus"),
    "tres_per_node": _per_node,
    "tres_per_socket": _of_gpus("tres_per_socket", "gpus_per_socket"),
    "tres_per_task": _per_task,
    "wait_all_nodes": lambda fields, value: None,
}
#: Fields that `submit` or other functions of this module handle.
_HANDLED = frozenset(
    (
        "argv", "environment", "group_id", "kill_warning_delay", "kill_warning_flags", "kill_warning_signal",
        "maximum_nodes", "memory_per_cpu", "memory_per_node", "minimum_nodes", "nodes", "script", "user_id",
    )
)  # fmt: skip

KNOWN = frozenset((*_TEXTS, *_COUNTS, *_FLAGS, *_REFUSED, *_IGNORED, *_OTHERS, *_HANDLED))


def _nodes(fields: Fields, desc: Json) -> None:
    text, low, high = desc.get("nodes") or "", desc.get("minimum_nodes") or 0, desc.get("maximum_nodes") or 0
    low, high = (0 if value in _NOT_GIVEN else value for value in (low, high))
    if text:
        try:
            if "," in text or ":" in text:
                counts = nodecount.parse_node_counts(text)
                fields["node_counts"], low, high = counts, counts[0], counts[-1]
            else:
                low, high = nodecount.parse_node_count(text)
        except NotationError as error:
            raise Refused("ESLURM_INVALID_NODE_COUNT", f"nodes: {error}", "nodes") from error
    if low or high:
        if not 0 <= low < _MOST or not 0 <= high < _MOST:
            raise bad("minimum_nodes", "out of range", "ESLURM_INVALID_NODE_COUNT")
        fields["nodes_min"], fields["nodes_max"], fields["nodes_given"] = max(low, 1), high, True


def _memory(fields: Fields, desc: Json) -> None:
    per_cpu, per_node = desc.get("memory_per_cpu"), desc.get("memory_per_node")
    if per_cpu is not None and per_cpu not in _NOT_GIVEN and per_cpu:
        fields["memory_mib_per_cpu"] = _count("memory_per_cpu", per_cpu)
    elif per_node is not None and per_node not in _NOT_GIVEN:
        fields["memory_mib_per_node"] = 0 if per_node == 0 else _count("memory_per_node", per_node)


def _signal(fields: Fields, desc: Json) -> None:
    name, seconds = desc.get("kill_warning_signal"), desc.get("kill_warning_delay")
    if not name or name == "0":
        return
    flags = desc.get("kill_warning_flags") or ()
    try:
        number = signals.parse_signal(name)
    except NotationError as error:
        raise bad("kill_warning_signal", str(error)) from error
    batch, reservation = "BATCH_JOB" in flags, "RESERVATION_JOB" in flags
    wait = 60 if seconds is None or seconds in _NOT_GIVEN else int(seconds)
    fields["end_signal"] = EndSignal(signal=number, seconds=wait, batch=batch, reservation=reservation)
