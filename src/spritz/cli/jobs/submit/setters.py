"""Parse each option's text into fields of the request; refuse bad values in Slurm's words.

Source: sbatch(1), salloc(1), srun(1); texts and exit codes of Slurm 22.05.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.jobs.submit.refusals import PARSE_STATUS, Fields, Refusal, Source, invalid
from spritz.model.errors import SpritzError
from spritz.model.job.record import Dependency, EndSignal, Sharing
from spritz.model.resources import GresRequest
from spritz.notation import nodecount
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.notation.gres import GresRequest as ParsedGres

# -- kinds of values


def _text(name: str) -> Callable[[Fields, str, Source], None]:
    def set_text(fields: Fields, value: str, source: Source) -> None:
        fields[name] = value

    return set_text


def _wckey(fields: Fields, value: str, source: Source) -> None:
    fields["wckey"], fields["no_wckey"] = value, not value


def _flag(name: str) -> Callable[[Fields, str, Source], None]:
    def set_flag(fields: Fields, value: str, source: Source) -> None:
        fields[name] = True

    return set_flag


def _count(name: str, option: str, minimum: int = 1) -> Callable[[Fields, str, Source], None]:
    def set_count(fields: Fields, value: str, source: Source) -> None:
        fields[name] = nodecount.parse_count(value, f"--{option}", minimum=minimum)

    return set_count


def _size(name: str, option: str) -> Callable[[Fields, str, Source], None]:
    def set_size(fields: Fields, value: str, source: Source) -> None:
        from spritz.notation import memory

        try:
            fields[name] = memory.parse_mib(value)
        except NotationError as error:
            raise invalid(option, str(error)) from error

    return set_size


def _gpus(name: str) -> Callable[[Fields, str, Source], None]:
    def set_gpus(fields: Fields, value: str, source: Source) -> None:
        from spritz.notation import gres

        try:
            fields[name] = requests(gres.parse_gpus(value))
        except NotationError as error:
            # Differs: Slurm takes a word that is not a count for a type, which no node has.
            raise Refusal("ESLURM_INVALID_GRES", str(error)) from error

    return set_gpus


def requests(parsed: tuple[ParsedGres, ...]) -> tuple[object, ...]:
    """The model's GresRequest records of parsed GRES."""
    return tuple(GresRequest(item.name, item.type or "", item.count) for item in parsed)


def _limit(name: str, option: str, unlimited: bool = False) -> Callable[[Fields, str, Source], None]:
    def set_limit(fields: Fields, value: str, source: Source) -> None:
        from spritz.notation import duration

        try:
            minutes = duration.parse_minutes(value)
        except NotationError as error:
            raise invalid(option, str(error)) from error
        # As in Slurm, `-t 0` requests no limit, so the job waits if its partition has a limit.
        fields[name] = minutes or (duration.INFINITE if unlimited else None)

    return set_limit


def _moment(name: str, option: str) -> Callable[[Fields, str, Source], None]:
    def set_moment(fields: Fields, value: str, source: Source) -> None:
        from spritz.notation import times

        try:
            fields[name] = times.parse_time(value, source.now)
        except NotationError as error:
            source.say(f"{error}\n")
            raise invalid(option) from error

    return set_moment


def _yes_no(name: str, option: str) -> Callable[[Fields, str, Source], None]:
    def set_yes_no(fields: Fields, value: str, source: Source) -> None:
        if value.lower() not in ("yes", "no"):
            raise invalid(option)
        fields[name] = value.lower() == "yes"

    return set_yes_no


def _hosts(name: str) -> Callable[[Fields, str, Source], None]:
    def set_hosts(fields: Fields, value: str, source: Source) -> None:
        if "/" in value:
            fields[name] = read_hosts(value, source, name.replace("_", ""))
        else:
            fields[name] = expanded(value)

    return set_hosts


def expanded(value: str) -> tuple[str, ...]:
    """Node names of a hostlist, in its order. Raises Refusal."""
    from spritz.notation import hostlist

    try:
        return tuple(hostlist.expand(value))
    except NotationError as error:
        raise Refusal("ESLURM_INVALID_NODE_NAME", str(error)) from error


def read_hosts(path: str, source: Source, option: str) -> tuple[str, ...]:
    """Node names from a file, separated by blanks, commas or newlines. Raises SpritzError."""
    try:
        with open(os.path.join(source.cwd, path), encoding="utf-8", errors="surrogateescape") as file:
            words = file.read().replace(",", " ").split()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        details = (f"slurm_allocate_resources error opening file {path}, {why}",)
        raise SpritzError(f"Invalid --{option} node file", exit_code=PARSE_STATUS, details=details) from error
    names = tuple(name for word in words for name in expanded(word))
    if not names:
        raise SpritzError(f"Invalid --{option} node file", exit_code=PARSE_STATUS, details=("Hostlist is empty!",))
    return names


# -- single options


def _nodes(fields: Fields, value: str, source: Source) -> None:
    try:
        if "," in value or ":" in value:
            counts = nodecount.parse_node_counts(value)
            fields["node_counts"], fields["nodes_min"], fields["nodes_max"] = counts, counts[0], counts[-1]
        else:
            fields["nodes_min"], fields["nodes_max"] = nodecount.parse_node_count(value)
    except NotationError as error:
        raise SpritzError(str(error), exit_code=PARSE_STATUS) from error
    fields["nodes_given"] = True


def _tasks(fields: Fields, value: str, source: Source) -> None:
    fields["tasks"] = nodecount.parse_count(value, "--ntasks")
    fields["tasks_given"] = True


def _partitions(fields: Fields, value: str, source: Source) -> None:
    # As in Slurm, `-p gpu,` names a single partition, and `-p ""` a partition that does not exist.
    fields["partitions"] = tuple(name for name in value.split(",") if name) or ("(null)",)


def _node_file(fields: Fields, value: str, source: Source) -> None:
    fields["node_list"] = read_hosts(value, source, "nodefile")


def _shape(fields: Fields, value: str, source: Source) -> None:
    shape = nodecount.parse_extra_node_info(value)
    fields["sockets_per_node"] = shape.sockets
    fields["cores_per_socket"] = shape.cores
    fields["threads_per_core"] = shape.threads


def _gres(fields: Fields, value: str, source: Source) -> None:
    from spritz.notation import gres

    if value.lower() == "none":
        fields["gres_per_node"] = ()
        return
    try:
        fields["gres_per_node"] = requests(gres.parse(value))
    except NotationError as error:
        raise Refusal("ESLURM_INVALID_GRES", str(error)) from error


def _binding(option: str) -> Callable[[Fields, str, Source], None]:
    def set_binding(fields: Fields, value: str, source: Source) -> None:
        from spritz.cli.jobs.submit.binding import SETTERS as BINDING

        BINDING[option](fields, value, source)

    return set_binding


def _hardware(option: str) -> Callable[[Fields, str, Source], None]:
    def check(fields: Fields, text: str, source: Source) -> None:
        from spritz.cli.jobs.submit.hardware import SETTERS as HARDWARE

        HARDWARE[option](fields, text, source)

    return check


def _dependencies(fields: Fields, value: str, source: Source) -> None:
    from spritz.notation import dependency

    try:
        parsed, mode = dependency.parse(value)
    except NotationError as error:
        raise Refusal("ESLURM_DEPENDENCY", str(error)) from error
    fields["dependencies"] = tuple(
        Dependency(kind=item.kind, job_id=item.job_id, task_id=item.task_id, minutes=item.minutes) for item in parsed
    )
    fields["dependency_mode"] = mode


_NICE_MAX = 2147483645


def _nice(fields: Fields, value: str, source: Source) -> None:
    if not value:
        fields["nice"] = 100
        return
    try:
        fields["nice"] = nodecount.parse_signed(value, "--nice", minimum=-_NICE_MAX, maximum=_NICE_MAX)
    except NotationError as error:
        if value.lstrip("+-").isdecimal():
            message = f"Invalid --nice value, out of range (+/- {_NICE_MAX})"
            raise SpritzError(message, exit_code=PARSE_STATUS) from error
        raise invalid("nice") from error


def _priority(fields: Fields, value: str, source: Source) -> None:
    top = value.lower() == "top"
    fields["priority"] = 0xFFFFFFFE if top else nodecount.parse_count(value, "--priority", minimum=0)


def _requeue(fields: Fields, value: str, source: Source) -> None:
    if value == "expedite":
        fields["expedite"] = True
    elif value and value not in ("1", "yes"):
        raise invalid("requeue")
    fields["requeue"] = True


def _no_requeue(fields: Fields, value: str, source: Source) -> None:
    fields["requeue"] = False


def _exclusive(fields: Fields, value: str, source: Source) -> None:
    if value in ("", "1", "yes", "exclusive"):
        fields["sharing"] = Sharing.EXCLUSIVE
    elif value == "user":
        fields["sharing"] = Sharing.USER
    elif value in ("mcs", "topo"):
        fields["sharing"] = Sharing(value)
    else:
        raise invalid("exclusive")


def _oversubscribe(fields: Fields, value: str, source: Source) -> None:
    fields["sharing"] = Sharing.OVERSUBSCRIBE


def _signal(fields: Fields, value: str, source: Source) -> None:
    from spritz.notation import signals

    try:
        option = signals.parse_signal_option(value)
    except NotationError as error:
        raise invalid("signal", str(error)) from error
    fields["end_signal"] = EndSignal(
        signal=option.number, seconds=option.seconds, batch=option.batch, reservation=option.reservation
    )


def _open_mode(fields: Fields, value: str, source: Source) -> None:
    if value[:1].lower() not in ("a", "t"):
        raise invalid("open-mode")
    fields["open_mode"] = value[0].lower()


def _no_kill(fields: Fields, value: str, source: Source) -> None:
    if value.lower() not in ("", "off", "no", "1", "yes"):
        raise invalid("no-kill")
    fields["no_kill"] = value.lower() not in ("off", "no")


def _mail_type(fields: Fields, value: str, source: Source) -> None:
    from spritz.notation.mail_types import parse

    words = parse(value)
    if words is None:
        raise invalid("mail-type")
    fields["mail_types"] = words


def _tres_per_task(fields: Fields, value: str, source: Source) -> None:
    from spritz.cli.jobs.submit.per_task import tres_per_task

    tres_per_task(fields, value, requests)


def _user(fields: Fields, value: str, source: Source) -> None:
    import pwd

    if os.geteuid() != 0:
        raise SpritzError("--uid only permitted by root user", exit_code=PARSE_STATUS)
    try:
        entry = pwd.getpwuid(int(value)) if value.isdecimal() else pwd.getpwnam(value)
    except (KeyError, OverflowError, ValueError):
        raise invalid("uid") from None
    fields["uid"] = entry.pw_uid
    fields.setdefault("gid", entry.pw_gid)


def _group(fields: Fields, value: str, source: Source) -> None:
    import grp

    if os.geteuid() != 0:
        raise SpritzError("--gid only permitted by root user", exit_code=PARSE_STATUS)
    try:
        entry = grp.getgrgid(int(value)) if value.isdecimal() else grp.getgrnam(value)
    except (KeyError, OverflowError, ValueError):
        raise invalid("gid") from None
    fields["gid"] = entry.gr_gid


def _wait_all_nodes(fields: Fields, value: str, source: Source) -> None:
    if (
        nodecount.parse_count(value, "--wait-all-nodes", minimum=0) > 1
    ):  # 0 and 1 do the same: a job always waits for all of its nodes
        raise invalid("wait-all-nodes")


def _consolidate_segments(fields: Fields, value: str, source: Source) -> None:
    fields["spread_segments"] = False  # the default: segments are placed on as few blocks as possible


def _switches(fields: Fields, value: str, source: Source) -> None:
    from spritz.notation import duration

    count, _, wait = value.partition("@")
    fields["switches"] = nodecount.parse_count(count, "--switches")
    if wait:
        try:
            fields["switch_wait_seconds"] = duration.parse_seconds(wait)
        except NotationError as error:
            raise invalid("switches", str(error)) from error


def _delay_boot(fields: Fields, value: str, source: Source) -> None:
    from spritz.notation import duration

    try:
        fields["delay_boot_seconds"] = duration.parse_seconds(value)
    except NotationError as error:
        raise invalid("delay-boot", str(error)) from error


def _acctg_freq(fields: Fields, value: str, source: Source) -> None:
    from spritz.cli.jobs.submit.gathering import acctg_freq

    acctg_freq(fields, value)


def _container(option: str) -> Callable[[Fields, str, Source], None]:
    def put(fields: Fields, value: str, source: Source) -> None:
        from spritz.cli.jobs.submit.container import set_option

        set_option(fields, option, value, source)

    return put


def _directory(fields: Fields, value: str, source: Source) -> None:
    fields["work_dir"] = os.path.normpath(os.path.join(source.cwd, value)) if value else source.cwd


_OF_CONTAINERS = (
    "container",
    "container-image",
    "container-mounts",
    "container-workdir",
    "container-writable",
    "container-readonly",
    "container-mount-home",
    "no-container-mount-home",
    "container-remap-root",
    "no-container-remap-root",
    "container-name",
    "container-save",
    "container-env",
    "container-entrypoint",
    "no-container-entrypoint",
    "container-entrypoint-log",
)

_OF_HARDWARE = (
    "accel-bind",
    "bbf",
    "core-spec",
    "cpu-freq",
    "gpu-freq",
    "msg-timeout",
    "oom-kill-step",
    "profile",
    "send-libs",
    "thread-spec",
)

SETTERS: dict[str, Callable[[Fields, str, Source], None]] = {
    "job-name": _text("name"),
    "account": _text("account"),
    "partition": _partitions,
    "qos": _text("qos"),
    "wckey": _wckey,
    "reservation": _text("reservation"),
    "comment": _text("comment"),
    "extra": _text("extra"),
    "nodes": _nodes,
    "ntasks": _tasks,
    "cpus-per-task": _count("cpus_per_task", "cpus-per-task"),
    "ntasks-per-node": _count("tasks_per_node", "ntasks-per-node"),
    "ntasks-per-socket": _count("tasks_per_socket", "ntasks-per-socket"),
    "ntasks-per-core": _count("tasks_per_core", "ntasks-per-core"),
    "ntasks-per-gpu": _count("tasks_per_gpu", "ntasks-per-gpu"),
    "mincpus": _count("cpus_per_node_min", "mincpus"),
    "nodelist": _hosts("node_list"),
    "exclude": _hosts("exclude"),
    "nodefile": _node_file,
    "use-min-nodes": _flag("use_min_nodes"),
    "spread-job": _flag("spread"),
    "contiguous": _flag("contiguous"),
    "switches": _switches,
    "segment": _count("segment", "segment"),
    "consolidate-segments": _consolidate_segments,
    "spread-segments": _flag("spread_segments"),
    "reboot": _flag("reboot"),
    "mcs-label": _text("mcs_label"),
    "delay-boot": _delay_boot,
    "extra-node-info": _shape,
    "sockets-per-node": _count("sockets_per_node", "sockets-per-node"),
    "cores-per-socket": _count("cores_per_socket", "cores-per-socket"),
    "threads-per-core": _count("threads_per_core", "threads-per-core"),
    "hint": _binding("hint"),
    "mem": _size("memory_mib_per_node", "mem"),
    "mem-per-cpu": _size("memory_mib_per_cpu", "mem-per-cpu"),
    "mem-per-gpu": _size("memory_mib_per_gpu", "mem-per-gpu"),
    "mem-bind": _binding("mem-bind"),
    "tmp": _size("tmp_mib", "tmp"),
    "gres": _gres,
    "gpus": _gpus("gpus"),
    "gpus-per-node": _gpus("gpus_per_node"),
    "gpus-per-task": _gpus("gpus_per_task"),
    "gpus-per-socket": _gpus("gpus_per_socket"),
    "cpus-per-gpu": _count("cpus_per_gpu", "cpus-per-gpu"),
    "gpu-bind": _binding("gpu-bind"),
    "gres-flags": _binding("gres-flags"),
    "tres-bind": _binding("tres-bind"),
    "tres-per-task": _tres_per_task,
    "licenses": _text("licenses"),
    "acctg-freq": _acctg_freq,
    "time": _limit("time_limit_minutes", "time", unlimited=True),
    "time-min": _limit("time_min_minutes", "time-min"),
    "deadline": _moment("deadline_at", "deadline"),
    "begin": _moment("begin_at", "begin"),
    "dependency": _dependencies,
    "hold": _flag("hold"),
    "nice": _nice,
    "priority": _priority,
    "kill-on-invalid-dep": _yes_no("kill_on_invalid_dependency", "kill-on-invalid-dep"),
    "array": _text("array"),
    "requeue": _requeue,
    "no-requeue": _no_requeue,
    "exclusive": _exclusive,
    "oversubscribe": _oversubscribe,
    "overcommit": _flag("overcommit"),
    "constraint": _text("features"),
    "cluster-constraint": _text("cluster_features"),
    "prefer": _text("prefer"),
    "distribution": _binding("distribution"),
    "cpu-bind": _binding("cpu-bind"),
    "output": _text("stdout"),
    "error": _text("stderr"),
    "input": _text("stdin"),
    "open-mode": _open_mode,
    "chdir": _directory,
    **{name: _container(name) for name in _OF_CONTAINERS},
    **{name: _hardware(name) for name in _OF_HARDWARE},
    "mail-type": _mail_type,
    "mail-user": _text("mail_user"),
    "signal": _signal,
    "no-kill": _no_kill,
    "wait-all-nodes": _wait_all_nodes,
    "uid": _user,
    "gid": _group,
}
