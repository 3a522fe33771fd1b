"""The table of description fields: what each name reads and writes of a JobSpec.

Source: slurm/slurm.h job_desc_msg_t.
"""

from __future__ import annotations

from typing import Any

from spritz.model.ids import INFINITE, NO_VAL
from spritz.notation.octets import octets, plain
from spritz.plugins import notations, numbers
from spritz.plugins.answer import FieldError
from spritz.plugins.kinds import (
    Described,
    DescriptionField,
    absent,
    clear,
    fact,
    flag,
    given,
    list_field,
    moment,
    number_field,
    number_of,
    per_gpu,
    requests,
    text_field,
    text_of,
)
from spritz.plugins.numbers import MEM_PER_CPU, NICE_OFFSET, NO_VAL16, NO_VAL64

_MEMORY = ("memory_mib_per_node", "memory_mib_per_cpu", "memory_mib_per_gpu")


def _memory(field: str) -> DescriptionField:
    others = tuple(other for other in _MEMORY if other != field)

    def write(d: Described, name: str, value: Any) -> None:
        number = given(name, value)
        d.put(field, number)
        clear(d, () if number is None else others)

    return DescriptionField(lambda d: d.fields.get(field), write)


def _read_bundle(d: Described) -> str | None:
    container = d.fields.get("container")
    return (container or {}).get("bundle") or None


def _write_bundle(d: Described, name: str, value: Any) -> None:
    text = text_of(name, value)
    d.put("container", {"bundle": text} if text else None)


def _read_any_memory(d: Described) -> int:
    if d.fields.get("memory_mib_per_cpu") is not None:
        return int(d.fields["memory_mib_per_cpu"]) | MEM_PER_CPU
    per_node = d.fields.get("memory_mib_per_node")
    return NO_VAL64 if per_node is None else int(per_node)


def _write_any_memory(d: Described, name: str, value: Any) -> None:
    # Lua's numbers cannot hold all 64 bits, so a value may come back rounded.
    number = number_of(name, value)
    if number >= NO_VAL64 - 0x400:
        for field in _MEMORY[:2]:
            d.put(field, None)
    elif number >= MEM_PER_CPU:
        FIELDS["min_mem_per_cpu"].write(d, name, number - MEM_PER_CPU)
    else:
        FIELDS["min_mem_per_node"].write(d, name, number)


def _read_nodes(d: Described) -> int:
    is_set = d.fields.get("nodes_given") or (d.modify and "nodes_min" in d.fields)
    return int(d.fields.get("nodes_min", 1)) if is_set else NO_VAL


def _write_nodes(d: Described, name: str, value: Any) -> None:
    number = given(name, value)
    d.put("nodes_min", None if number is None else max(number, 1))
    d.put("nodes_given", None if number is None else True)
    if d.fields.get("node_counts"):
        d.put("node_counts", None)


def _write_most_nodes(d: Described, name: str, value: Any) -> None:
    d.put("nodes_max", given(name, value))
    if d.fields.get("node_counts"):
        d.put("node_counts", None)


def _write_tasks(d: Described, name: str, value: Any) -> None:
    number = given(name, value)
    d.put("tasks", number)
    d.put("tasks_given", None if number is None else True)


def _read_tasks(d: Described) -> int:
    is_set = d.fields.get("tasks_given") or (d.modify and "tasks" in d.fields)
    return int(d.fields.get("tasks", 1)) if is_set else NO_VAL


def _read_cpus(d: Described) -> int:
    if d.modify:
        return int(d.fields.get("tasks", NO_VAL))
    return int(d.fields.get("tasks", 1)) * int(d.fields.get("cpus_per_task") or 1)


def _write_cpus(d: Described, name: str, value: Any) -> None:
    if d.modify:
        _write_tasks(d, name, value)
    else:
        d.min_cpus = given(name, value)


def _read_cpus_of_node(d: Described) -> int:
    least = d.fields.get("cpus_per_node_min")
    per_task = d.fields.get("cpus_per_task")
    return int(least) if least is not None else NO_VAL16 if per_task is None else int(per_task)


def _write_cpus_of_node(d: Described, name: str, value: Any) -> None:
    if number_of(name, value) != _read_cpus_of_node(d):
        d.put("cpus_per_node_min", given(name, value, NO_VAL16))


def _write_nice(d: Described, name: str, value: Any) -> None:
    number = given(name, value)
    d.put("nice", None if number is None else number - NICE_OFFSET)


def _read_nice(d: Described) -> int:
    nice = d.fields.get("nice")
    return NO_VAL if nice is None else int(nice) + NICE_OFFSET


def _read_priority(d: Described) -> int:
    if d.fields.get("hold"):
        return 0
    if d.modify and "priority" in d.fields and d.fields["priority"] is None:
        return INFINITE
    value = d.fields.get("priority")
    return NO_VAL if value is None else int(value)


def _write_priority(d: Described, name: str, value: Any) -> None:
    number = given(name, value)
    if not d.modify:
        d.put("hold", True if number == 0 else None)
        d.put("priority", None if number in (0, INFINITE) else number)
    elif number is None:
        d.fields.pop("priority", None)
    else:
        d.put("priority", None if number == INFINITE else number)


_SHARING = {"": NO_VAL16, "exclusive": numbers.SHARED_NONE, "oversubscribe": numbers.SHARED_OK}
_SHARING |= {"user": numbers.SHARED_USER, "mcs": 3, "topo": 4}


def _write_sharing(d: Described, name: str, value: Any) -> None:
    number = given(name, value, NO_VAL16)
    word = next((word for word, code in _SHARING.items() if code == number), None)
    if word is None and number is not None:
        raise FieldError(f"{name}: {number} is not one of JOB_SHARED_NONE, JOB_SHARED_OK, JOB_SHARED_USER and NO_VAL16")
    d.put("sharing", word or None)


def _read_script(d: Described) -> str | None:
    return plain(d.script.decode("utf-8", "surrogateescape")) if d.script else None


def _write_script(d: Described, name: str, value: Any) -> None:
    if d.modify:
        raise FieldError(f"{name}: the script of a job cannot be changed")
    d.script = octets(text_of(name, value))


def _write_dependency(d: Described, name: str, value: Any) -> None:
    conditions, mode = notations.dependencies(text_of(name, value))
    d.put("dependencies", conditions)
    d.put("dependency_mode", mode)


def _read_dependency(d: Described) -> str | None:
    return notations.dependency_text(d.fields.get("dependencies") or (), d.fields.get("dependency_mode", "all"))


def _read_mail(d: Described) -> int:
    return sum(numbers.MAIL.get(word, 0) for word in d.fields.get("mail_types") or ())


def _write_mail(d: Described, name: str, value: Any) -> None:
    number = number_of(name, value)
    unknown = number & ~sum(numbers.MAIL.values())
    if unknown:
        raise FieldError(f"{name}: there is no mail type {unknown:#x}")
    d.put("mail_types", [word for word, bit in numbers.MAIL.items() if number & bit])


_BITS = {"spread": numbers.SPREAD_JOB, "use_min_nodes": numbers.USE_MIN_NODES}
_BINDS = {"enforce-binding": numbers.GRES_ENFORCE_BIND, "disable-binding": numbers.GRES_DISABLE_BIND}


def _read_bits(d: Described) -> int:
    bits = sum(bit for field, bit in _BITS.items() if d.fields.get(field))
    bits |= sum(bit for word, bit in _BINDS.items() if word in (d.fields.get("gres_flags") or ()))
    kill = d.fields.get("kill_on_invalid_dependency")
    return bits | (0 if kill is None else numbers.KILL_INV_DEP if kill else numbers.NO_KILL_INV_DEP)


def _write_bits(d: Described, name: str, value: Any) -> None:
    number = number_of(name, value)
    supported = sum(_BITS.values()) | sum(_BINDS.values()) | numbers.KILL_INV_DEP | numbers.NO_KILL_INV_DEP
    if number & ~supported:
        raise FieldError(f"{name}: {number & ~supported:#x} is not a known flag")
    before = _read_bits(d)
    for field, bit in _BITS.items():
        if (number ^ before) & bit:
            d.put(field, True if number & bit else None)
    if (number ^ before) & sum(_BINDS.values()):
        others = [word for word in d.fields.get("gres_flags") or () if word not in _BINDS]
        d.put("gres_flags", others + [word for word, bit in _BINDS.items() if number & bit])
    if (number ^ before) & (numbers.KILL_INV_DEP | numbers.NO_KILL_INV_DEP):
        kill = bool(number & numbers.KILL_INV_DEP)
        d.put("kill_on_invalid_dependency", kill if number & 3 else None)


def _arguments(d: Described) -> list[str] | None:
    if d.modify:
        return None
    arguments = list(d.fields.get("arguments") or ())
    command = str(d.fields.get("command", ""))
    program = command[: -len(" ".join(arguments)) - 1] if arguments else command
    return [program or str(d.fields.get("name", "")), *arguments]


def _read_per_task(d: Described) -> str | None:
    return notations.gres_text([*(d.fields.get("gpus_per_task") or ()), *(d.fields.get("gres_per_task") or ())])


def _write_per_task(d: Described, name: str, value: Any) -> None:
    requests = notations.gres_requests(text_of(name, value), name)
    d.put("gpus_per_task", [request for request in requests if request["name"] == "gpu"])
    d.put("gres_per_task", [request for request in requests if request["name"] != "gpu"])


def _split(text: str, name: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _joined(words: Any) -> str | None:
    return ",".join(words) or None


_NO_BURST = "there are no burst buffers"
_NO_FREQUENCY = "processor and GPU clocks are not set"

FIELDS: dict[str, DescriptionField] = {
    "account": text_field("account"),
    "acctg_freq": DescriptionField(
        lambda d: None if d.fields.get("sample_seconds") is None else str(d.fields["sample_seconds"]),
        lambda d, name, value: d.put("sample_seconds", number_of(name, value) if value != "" else None),
    ),
    "admin_comment": text_field("admin_comment"),
    "alloc_node": DescriptionField(lambda d: d.fields.get("submit_host") or None),
    "argc": DescriptionField(lambda d: len(_arguments(d) or ())),
    "argv": DescriptionField(_arguments),
    "array_inx": text_field("array"),
    "assoc_comment": absent(None, "associations have no comments here"),
    "assoc_qos": fact("assoc_qos"),
    "batch_features": absent(None, "--batch is not built"),
    "begin_time": moment("begin_at"),
    "bitflags": DescriptionField(_read_bits, _write_bits),
    "boards_per_node": absent(NO_VAL16, "boards are not chosen"),
    "burst_buffer": absent(None, _NO_BURST),
    "clusters": absent(None, "a job is of the cluster that it is submitted to"),
    "comment": text_field("comment"),
    "container": DescriptionField(_read_bundle, _write_bundle),
    "contiguous": DescriptionField(
        lambda d: int(bool(d.fields.get("contiguous"))),
        lambda d, name, value: d.put("contiguous", bool(number_of(name, value)) or None),
    ),
    "core_spec": DescriptionField(
        lambda d: d.fields.get("core_spec"),
        lambda d, name, value: d.put("core_spec", given(name, value, NO_VAL16)),
    ),
    "cores_per_socket": number_field("cores_per_socket", NO_VAL16),
    "cpu_freq_gov": absent(NO_VAL, _NO_FREQUENCY),
    "cpu_freq_max": absent(NO_VAL, _NO_FREQUENCY),
    "cpu_freq_min": absent(NO_VAL, _NO_FREQUENCY),
    "cpus_per_task": number_field("cpus_per_task", NO_VAL16),
    "cpus_per_tres": per_gpu("cpus_per_gpu"),
    "cron_job": DescriptionField(lambda d: d.fields.get("cron") is not None, None, "crontabs are written by scrontab"),
    "default_account": fact("default_account"),
    "default_qos": fact("default_qos"),
    "delay_boot": absent(NO_VAL, "--delay-boot is not built"),
    "dependency": DescriptionField(_read_dependency, _write_dependency),
    "end_time": moment("deadline_at"),
    "exc_nodes": list_field("exclude", notations.hosts, notations.hosts_text),
    "extra": text_field("extra"),
    "features": text_field("features"),
    "gres": requests(("gres_per_node", "gpus_per_node")),
    "group_id": DescriptionField(lambda d: d.fields.get("gid", NO_VAL)),
    "het_job_offset": fact("het_job_offset", NO_VAL),
    "immediate": fact("immediate", 0),
    "licenses": text_field("licenses"),
    "mail_type": DescriptionField(_read_mail, _write_mail),
    "mail_user": text_field("mail_user"),
    "max_cpus": absent(NO_VAL, "jobs have no greatest number of CPUs"),
    "max_nodes": DescriptionField(lambda d: d.fields.get("nodes_max") or NO_VAL, _write_most_nodes),
    "mcs_label": text_field("mcs_label"),
    "mem_per_tres": per_gpu("memory_mib_per_gpu", _MEMORY[:2]),
    "min_cpus": DescriptionField(_read_cpus, _write_cpus),
    "min_mem_per_cpu": _memory("memory_mib_per_cpu"),
    "min_mem_per_node": _memory("memory_mib_per_node"),
    "min_nodes": DescriptionField(_read_nodes, _write_nodes),
    "name": text_field("name"),
    "network": absent(None, "there is no network plugin"),
    "nice": DescriptionField(_read_nice, _write_nice),
    "ntasks_per_board": absent(0, "boards are not chosen"),
    "ntasks_per_core": number_field("tasks_per_core", NO_VAL16),
    "ntasks_per_gpu": number_field("tasks_per_gpu", NO_VAL16),
    "ntasks_per_node": number_field("tasks_per_node", NO_VAL16),
    "ntasks_per_socket": number_field("tasks_per_socket", NO_VAL16),
    "ntasks_per_tres": number_field("tasks_per_gpu", NO_VAL16),
    "num_tasks": DescriptionField(_read_tasks, _write_tasks),
    "oversubscribe": DescriptionField(lambda d: _SHARING[d.fields.get("sharing") or ""], _write_sharing),
    "pack_job_offset": fact("het_job_offset", NO_VAL),
    "partition": list_field("partitions", _split, _joined),
    "pn_min_cpus": DescriptionField(_read_cpus_of_node, _write_cpus_of_node),
    "pn_min_memory": DescriptionField(_read_any_memory, _write_any_memory),
    "pn_min_tmp_disk": number_field("tmp_mib"),
    "prefer": text_field("prefer"),
    "priority": DescriptionField(_read_priority, _write_priority),
    "qos": text_field("qos"),
    "reboot": flag("reboot"),
    "req_context": absent(None, "there is no SELinux here"),
    "req_nodes": list_field("node_list", notations.hosts, notations.hosts_text),
    "req_switch": number_field("switches"),
    "requeue": flag("requeue"),
    "reservation": text_field("reservation"),
    "script": DescriptionField(_read_script, _write_script),
    "segment_size": number_field("segment", NO_VAL16),
    "selinux_context": absent(None, "there is no SELinux here"),
    "shared": DescriptionField(lambda d: _SHARING[d.fields.get("sharing") or ""], _write_sharing),
    "site_factor": absent(NO_VAL, "there is no site factor plugin"),
    "sockets_per_board": absent(NO_VAL16, "boards are not chosen"),
    "sockets_per_node": number_field("sockets_per_node", NO_VAL16),
    "spank_job_env": absent(None, "SPANK plugins are not loaded"),
    "spank_job_env_size": absent(0, "SPANK plugins are not loaded"),
    "std_err": text_field("stderr"),
    "std_in": DescriptionField(
        lambda d: d.fields.get("stdin") or ("/dev/null" if d.script else None),
        lambda d, name, value: d.put("stdin", text_of(name, value) or None),
    ),
    "std_out": text_field("stdout"),
    "thread_spec": absent(None, "--thread-spec is not built"),
    "threads_per_core": number_field("threads_per_core", NO_VAL16),
    "time_limit": number_field("time_limit_minutes"),
    "time_min": number_field("time_min_minutes"),
    "tres_bind": DescriptionField(
        lambda d: f"gres/gpu:{d.fields['gpu_bind']}" if d.fields.get("gpu_bind") else None,
        lambda d, name, value: d.put("gpu_bind", _gpu_bind(text_of(name, value), name)),
    ),
    "tres_freq": absent(None, _NO_FREQUENCY),
    "tres_per_job": requests(("gpus",)),
    "tres_per_node": requests(("gres_per_node", "gpus_per_node")),
    "tres_per_socket": requests(("gpus_per_socket",)),
    "tres_per_task": DescriptionField(_read_per_task, _write_per_task),
    "user_id": DescriptionField(lambda d: d.fields.get("uid", NO_VAL)),
    "user_name": DescriptionField(lambda d: d.fields.get("user") or d.facts.get("user_name")),
    "wait4switch": number_field("switch_wait_seconds"),
    "wckey": text_field("wckey"),
    "work_dir": text_field("work_dir"),
}


def _gpu_bind(text: str, name: str) -> str | None:
    if not text:
        return None
    kind, colon, bind = text.removeprefix("gres/").removeprefix("gres:").partition(":")
    if kind != "gpu" or not colon:
        raise FieldError(f"{name}: {text} is not gres/gpu:HOW")
    return bind
