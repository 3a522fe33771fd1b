"""Find problems of this machine and its cluster, and suggest remedies."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shlex
import shutil
import socket
import sys
from typing import TYPE_CHECKING

from spritz import SLURM_VERSION, __version__, installed
from spritz.cli.call.context import Context
from spritz.cli.local import daemons
from spritz.cli.local.doctor import cluster, engines
from spritz.cli.local.doctor.finding import NOTE, OK, WRONG, Finding, count
from spritz.cli.local.doctor.log_end import last_error, tail
from spritz.cli.local.down import joined_role
from spritz.cli.local.network import is_own
from spritz.cli.local.paths import ClusterPaths, SitePaths, default_root
from spritz.client.errors import ClientError
from spritz.client.locate import find_slurm_conf, read_keys, system_state_home
from spritz.config.diagnostics import ConfigError
from spritz.config.load import load
from spritz.runtime.programs import mail_program
from spritz.stepd.pmix.binding import NAME as PMIX

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator

    from spritz.config.loaded import LoadedConfig

    Check = Callable[[ClusterPaths, Context], Iterator[Finding]]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dir", metavar="DIR", help="directory of the cluster (default: the one that commands find, as by SLURM_CONF)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: Namespace, context: Context) -> int:
    """0: no problem found; 1: at least one."""
    paths = ClusterPaths.of(arguments.dir) if arguments.dir else _found(context)
    findings = [finding for check in CHECKS for finding in check(paths, context)]
    wrong = sum(finding.grade == WRONG for finding in findings)
    if arguments.json:
        rows = [{"grade": f.grade, "text": f.text, "advice": f.advice} for f in findings]
        context.out(json.dumps({"wrong": wrong, "findings": rows}, indent=2) + "\n")
        return 1 if wrong else 0
    marks = {OK: "  ok  ", NOTE: " note ", WRONG: "WRONG "}
    colours = {OK: "32", NOTE: "33", WRONG: "31"}
    for finding in findings:
        mark = marks[finding.grade]
        if context.terminal:
            mark = f"\033[{colours[finding.grade]}m{mark}\033[0m"
        context.out(f"[{mark}] {finding.text}\n")
        if finding.advice:
            context.out(f"         → {finding.advice}\n")
    context.out("Nothing is wrong.\n" if not wrong else f"{wrong} thing{'' if wrong == 1 else 's'} to mend.\n")
    return 1 if wrong else 0


def _found(context: Context) -> ClusterPaths:
    """The cluster that commands find; the user's default one if they find none."""
    try:
        conf = os.path.abspath(find_slurm_conf())
    except ClientError:
        return ClusterPaths.of(None)
    paths = ClusterPaths(os.path.dirname(os.path.dirname(conf)))
    return paths if paths.slurm_conf == conf and _is_made(paths) else SitePaths(conf)


def _is_made(paths: ClusterPaths) -> bool:
    """Whether `spritz up` made the cluster there: a site may have directories of the same names."""
    try:
        pid_file = read_keys(frozenset({"slurmctldpidfile"}), paths.slurm_conf).get("slurmctldpidfile", "")
    except ClientError:
        pid_file = paths.controller_pid
    return pid_file == paths.controller_pid and os.path.isdir(paths.run) and joined_role(paths) is None


def _software(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding(OK, f"Spritz {__version__} (Slurm {SLURM_VERSION} level) on Python {version}, {sys.executable}")
    ours = installed.command("sbatch")
    first = shutil.which("sbatch", path=context.environ.get("PATH", ""))
    if first is None:
        yield Finding(NOTE, "sbatch is not on PATH", f'export PATH={os.path.dirname(ours)}:"$PATH"')
    elif os.path.exists(ours) and not os.path.samefile(first, ours):
        yield Finding(
            NOTE, f"another sbatch comes first on PATH: {first}", f'export PATH={os.path.dirname(ours)}:"$PATH"'
        )


def _other_users(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    if os.geteuid() == 0 and (closed := installed.closed_to_others()):
        yield Finding(
            NOTE,
            f"other users cannot enter {closed}: their commands and jobs end with Permission denied",
            "install in a place, and with a Python, that all users can read: see docs/how-to/several-users.md",
        )
    if os.geteuid() == 0 and not isinstance(paths, SitePaths) and (closed := installed.closed_on_the_way(paths.spool)):
        yield Finding(
            NOTE,
            f"other users cannot enter {closed}: their commands find no cluster here, and their batch jobs fail",
            f"`spritz down`, then move {paths.root} (root's default is {system_state_home()}/default), change the path"
            " in the files of etc, and `spritz up`",
        )


def _configuration(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    try:
        slurm_conf = find_slurm_conf()
    except ClientError:
        slurm_conf = paths.slurm_conf
    if os.path.abspath(slurm_conf) != paths.slurm_conf:
        named = "" if paths.root == default_root() else f" --dir {shlex.quote(paths.root)}"
        yield Finding(
            NOTE,
            f"commands use {slurm_conf}, not {paths.slurm_conf}",
            f'eval "$(spritz env{named})" points this shell at it',
        )
    if not os.path.exists(paths.slurm_conf):
        yield Finding(NOTE, f"no cluster in {paths.root} yet", "make one with `spritz up`")
        return
    try:
        loaded = load(paths.slurm_conf)
    except ConfigError as error:
        yield Finding(WRONG, f"{paths.slurm_conf} has errors", f"spritz config check {paths.slurm_conf}")
        for diagnostic in error.diagnostics:
            yield Finding(WRONG, str(diagnostic))
        return
    yield Finding(
        OK, f"{paths.slurm_conf}: {count(len(loaded.nodes), 'node')}, {count(len(loaded.partitions), 'partition')}"
    )
    yield from _default_memory(loaded)


def _default_memory(loaded: LoadedConfig) -> Iterator[Finding]:
    """Partitions where a job that asks for no memory gets all memory of its nodes, so that nothing runs beside it."""
    cluster = loaded.cluster
    cluster_default = cluster.default_memory_mib_per_cpu or cluster.default_memory_mib_per_node
    whole = [
        partition.name
        for partition in loaded.partitions
        if partition.memory_consumable
        and not (cluster_default or partition.default_memory_mib_per_cpu or partition.default_memory_mib_per_node)
        and partition.oversubscribe != "EXCLUSIVE"
    ]
    if whole:
        yield Finding(
            NOTE,
            f"jobs that ask for no memory get all of their nodes' in partition {', '.join(whole)}: one job a node",
            "DefMemPerCPU in slurm.conf, such as RealMemory divided by CPUs",
        )


def _mail(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    """Whether --mail-type can send mail. slurmctld runs on this machine (README), so its mail program counts."""
    if not os.path.exists(paths.slurm_conf):
        return
    try:
        program = mail_program(read_keys(frozenset({"mailprog"}), paths.slurm_conf).get("mailprog", "/bin/mail"))
    except ClientError:
        return  # `_configuration` reports it
    if not os.access(program, os.X_OK):
        problem = "cannot be run" if os.path.exists(program) else "is missing"
        yield Finding(
            NOTE,
            f"no mail is sent for --mail-type: {program} {problem}",
            "install a program that provides it (mailutils, bsd-mailx), or set MailProg in slurm.conf",
        )


def _directories(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    if isinstance(paths, SitePaths) or not os.path.isdir(paths.root):
        return
    for path in (paths.state, paths.spool, paths.log, paths.run):
        if not os.access(path, os.W_OK):
            yield Finding(
                WRONG, f"cannot write to {path}", "the cluster belongs to the user that made it; check owner and mode"
            )
    free_mib = shutil.disk_usage(paths.root).free >> 20
    if free_mib < 100:
        yield Finding(
            WRONG, f"{free_mib} MiB free under {paths.root}", "submissions are refused when the disk is full; make room"
        )
    else:
        yield Finding(OK, f"{free_mib >> 10} GiB free under {paths.root}")


def _daemons(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    if isinstance(paths, SitePaths) or not os.path.exists(paths.slurm_conf):
        return
    logs = {"slurmctld": paths.controller_log, "slurmd": paths.node_log, "slurmdbd": paths.database_log}
    for name, pid in daemons.living(paths).items():
        if pid is None:
            advice = "start it with `spritz up`"
            last = last_error(logs[name])
            if last:
                advice += f"; its log ends: {last}"
            yield Finding(WRONG, f"{name} is not running", advice)
        else:
            yield Finding(OK, f"{name} runs (pid {pid})")


def _containment(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    """Whether slurmd, since its start, could create the cgroups of its steps: its log names each failure."""
    if isinstance(paths, SitePaths):
        log = tail(paths.node_log, _SINCE_START)
        advice = "restart slurmd where no job runs"
    elif daemons.living(paths).get("slurmd") is None:
        return
    else:
        log = tail(paths.node_log, _SINCE_START)
        advice = "run `spritz down` and `spritz up`; running jobs end, queued jobs stay"
    yield from _held(log)
    since = log.rpartition(" daemon.started ")[2]
    lost = [line for line in since.splitlines() if " step.uncontained " in line]
    if lost:
        yield Finding(
            WRONG,
            "steps run without the cgroup that holds their limits: " + lost[-1].partition("step.uncontained ")[2][:200],
            advice,
        )


#: Bytes of a log that reach back to the start of its daemon.
_SINCE_START = 1 << 24


#: What users must expect where slurmd enforces a limit by other means than the kernel, by the words of slurmd's log:
#: (subject, means).
_UNHELD = {
    ("memory", "sampling"): "memory limits are held by sampling, a second late",
    ("memory", "nothing"): "jobs can use more memory than they have (cgroup.conf: ConstrainRAMSpace)",
    ("cores", "affinity"): "jobs can leave their cores",
    ("cores", "nothing"): "jobs can use all cores",
    ("devices", "nothing"): "jobs can open GPUs that they were not given",
    ("suspend", "signals"): "suspended jobs can wake themselves",
    ("sessions", "nothing"): "sessions by ssh cannot be put into jobs",
    ("directories", "nothing"): "jobs share /tmp and /dev/shm",
}


#: The same layouts as in `spritz.node.enforcement`, which a command does not import: it belongs to a daemon.
_EARLIER = {
    "v1": "cgroups of version 1 are mounted: these cannot freeze, kill at once, or take sessions by ssh",
    "hybrid": "cgroups of version 1 hold memory, cores and devices; version 2 is mounted without these controllers",
}


def _held(log: str) -> Iterator[Finding]:
    """The limits that the kernel does not enforce, from the line that slurmd logged when it started."""
    words = dict(word.partition("=")[::2] for word in log.rpartition(" daemon.confines ")[2].partition("\n")[0].split())
    if words.get("cgroups") in _EARLIER and "cgroup" in words.values():
        advice = "boot with systemd.unified_cgroup_hierarchy=1; CgroupPlugin=cgroup/v2 in cgroup.conf refuses version 1"
        yield Finding(NOTE, _EARLIER[words["cgroups"]], advice)
    unheld = [text for (name, how), text in _UNHELD.items() if words.get(name) == how]
    if not unheld:
        return
    if words.get("root") == "True":
        advice = "cgroup.conf with TaskPlugin=task/cgroup, and JobContainerType=job_container/tmpfs: docs/security.md"
    else:
        advice = "slurmd runs without root, so the kernel allows no more; docs/security.md explains the consequences"
    yield Finding(NOTE, "not enforced by the kernel: " + "; ".join(unheld), advice)


def _mpi(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    """Whether this machine has the library of `srun --mpi=pmix`."""
    try:
        default = read_keys(frozenset({"mpidefault"}), paths.slurm_conf).get("mpidefault", "")
    except ClientError:
        default = ""
    try:
        ctypes.CDLL(PMIX)
    except OSError:
        grade = WRONG if default.startswith("pmix") and _is_node(paths) else NOTE
        advice = "install PMIx on each node (Debian: libpmix2) for MPI programs that use it; --mpi=pmi2 needs nothing"
        yield Finding(grade, f"no --mpi=pmix here: {PMIX} is missing", advice)


def _is_node(paths: ClusterPaths) -> bool:
    """Whether slurmd runs jobs on this machine, as far as slurm.conf says."""
    try:
        return any(is_own(node) for node in load(paths.slurm_conf).nodes)
    except (ConfigError, ClientError):
        return False


def _containers(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    yield from engines.findings(os.path.join(os.path.dirname(paths.slurm_conf), "oci.conf"))


def _machine(paths: ClusterPaths, context: Context) -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 1024:
        yield Finding(NOTE, f"only {soft} open files are allowed", "raise it with `ulimit -n 4096` before `spritz up`")
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        yield Finding(
            NOTE,
            f"this machine's name does not resolve: {socket.gethostname()}",
            "programs that look up their node's name fail; add it to /etc/hosts",
        )
    yield _gpus()


def _gpus() -> Finding:
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            count = pynvml.nvmlDeviceGetCount()
            return Finding(OK, f"{count} NVIDIA GPU{'' if count == 1 else 's'} found")
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # NVML raises its own family, and ImportError where it is not installed
        if os.path.exists("/proc/driver/nvidia/version"):
            return Finding(
                NOTE, "an NVIDIA driver is loaded, but NVML does not answer", "check the driver with nvidia-smi"
            )
        return Finding(OK, "no NVIDIA GPU here")


CHECKS: tuple[Check, ...] = (
    _software,
    _other_users,
    _configuration,
    _mail,
    _directories,
    _daemons,
    _containment,
    cluster.joined,
    cluster.state_space,
    cluster.controllers,
    cluster.nodes,
    cluster.accounting,
    _containers,
    _mpi,
    _machine,
)
