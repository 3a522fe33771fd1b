"""What a request takes along from where it is made: directory, umask, limits, environment, host.

Source: sbatch(1) --export, --export-file, --propagate, --chdir.
"""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.model.job import ResourceLimit

if TYPE_CHECKING:
    from pwd import struct_passwd
    from typing import Any

    from spritz.cli.context import Context

#: limits that Slurm propagates, in its order, with the system's numbers of them
LIMITS = {
    name: getattr(resource, f"RLIMIT_{name}")
    for name in ("FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS", "CPU")
}


def umask() -> int:
    """The process's own umask, set for a moment to be told: a command has one thread."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def become(uid: int, gid: int) -> None:
    """Give up root's privileges for those of the job's user, for good; nothing if the process is that user already.

    Source: srun(1) --uid: srun drops its permissions when the nodes are allocated. Raises SpritzError.
    """
    if os.geteuid() == uid:
        return
    import pwd

    try:
        os.initgroups(pwd.getpwuid(uid).pw_name, gid)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except (KeyError, OSError) as error:
        raise SpritzError(f"Unable to assume uid={uid}") from error


def limits(wanted: str | None) -> tuple[ResourceLimit, ...]:
    """Soft limits to take along: all, none, or the names of `--propagate`. Raises SpritzError for an unknown name."""
    names = list(LIMITS)
    if wanted is not None and wanted.upper() not in ("", "ALL"):
        names = [] if wanted.upper() == "NONE" else wanted.split(",")
    found = []
    for word in names:
        name = word.upper().removeprefix("RLIMIT_")
        if name not in LIMITS:
            raise SpritzError(f"--propagate={wanted} is not valid.", details=(f"Bad rlimit name: {word}",))
        found.append(ResourceLimit(name, resource.getrlimit(LIMITS[name])[0]))
    return tuple(found)


def exported(context: Context, export: str | None) -> dict[str, str]:
    """The environment that `--export` lets through. NONE and NIL keep only what Slurm itself sets."""
    environ = context.environ
    if not export or export.upper() == "ALL":
        return dict(environ)
    own = {name: value for name, value in environ.items() if name.startswith(("SLURM_", "SPANK_"))}
    if export.upper() in ("NONE", "NIL"):
        return own
    words = _export_words(export)
    chosen = dict(environ) if "ALL" in words else own
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            chosen[name] = value
        elif name in environ and word != "ALL":
            chosen[name] = environ[name]
    return chosen


def leaves_out_most(export: str | None) -> bool:
    """--export without ALL: a batch script then gets its user's login environment instead."""
    if not export or export.upper() in ("ALL", "NIL"):
        return False
    return "ALL" not in _export_words(export)


#: What a job's environment says of that job, which is not true of one that is submitted from inside it.
_OF_A_JOB = (
    "SLURM_ARRAY_ SLURM_CPUS_ SLURM_CPU_BIND SLURM_DIST SLURM_EXPORT_ENV SLURM_GET_USER_ENV SLURM_GPU SLURM_GTIDS "
    "SLURM_JOB SLURM_LAUNCH_ SLURM_LOCALID SLURM_MEM_ SLURM_NNODES SLURM_NODE SLURM_NPROCS SLURM_NTASKS "
    "SLURM_OVERCOMMIT SLURM_PRIO_PROCESS SLURM_PROCID SLURM_RESTART_COUNT SLURM_SRUN_ SLURM_STEP SLURM_TASK "
    "SLURM_THREADS_PER_CORE SLURM_TOPOLOGY_ SLURM_TRES_ SLURM_UMASK SLURMD_NODENAME"
)


def without_enclosing_job(environ: dict[str, str]) -> dict[str, str]:
    """Differs: Slurm lets variables of the job around leak into one that is submitted from inside it."""
    if "SLURM_JOB_ID" not in environ:
        return environ
    prefixes = tuple(_OF_A_JOB.split())
    return {name: value for name, value in environ.items() if not name.startswith(prefixes)}


_LOGIN_SECONDS = 8.0


def login_environment(user: str | None = None, *, mode: str = "", seconds: float = 0.0) -> dict[str, str]:
    """What the user's login shell sets (mode S: a shell that is no login shell). If it says nothing in time: the least.

    Source: sbatch(1) --get-user-env.
    """
    import pwd
    import subprocess

    entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    least = least_environment(entry)
    # What the user has in its profile runs with the user's rights, whoever asks: root does for --uid.
    rights: dict[str, Any] = {}
    if os.geteuid() == 0 and entry.pw_uid:
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        rights = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}
    flags = [] if mode.upper() == "S" else ["-l"]
    try:
        done = subprocess.run(
            [least["SHELL"], *flags, "-c", "env -0"],
            env=least,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds or _LOGIN_SECONDS,
            check=True,
            **rights,
        )
    except (OSError, subprocess.SubprocessError):
        return least
    pairs = (entry.partition(b"=") for entry in done.stdout.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if name and equals} or least


def least_environment(entry: struct_passwd) -> dict[str, str]:
    """What every login has."""
    return {
        "HOME": entry.pw_dir,
        "LOGNAME": entry.pw_name,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "SHELL": entry.pw_shell or "/bin/sh",
        "USER": entry.pw_name,
    }


def _export_words(export: str) -> list[str]:
    """Commas divide, except inside quotes."""
    words, current, quote = [], "", ""
    for letter in export:
        if quote:
            if letter == quote:
                quote = ""
            else:
                current += letter
        elif letter in "'\"":
            quote = letter
        elif letter == ",":
            words.append(current)
            current = ""
        else:
            current += letter
    words.append(current)
    return [word for word in words if word]


def environment_file(path: str) -> dict[str, str]:
    """Variables of `--export-file`: NAME=value, NUL separated; a number is an open file descriptor."""
    try:
        with open(int(path) if path.isdigit() else path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise SpritzError(f"Could not open user environment file {path}") from error
    pairs = (entry.partition(b"=") for entry in content.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if name and equals}


def encoded(environ: dict[str, str]) -> tuple[bytes, ...]:
    """`NAME=value` each, whatever bytes they are."""
    if not environ:
        return ()
    return tuple(os.fsencode("\0".join([f"{name}={value}" for name, value in environ.items()])).split(b"\0"))


def user_env_option(text: str) -> tuple[float, str]:
    """--get-user-env=[seconds][mode], mode S or L. Raises SpritzError."""
    digits = text.rstrip("SLsl")
    mode = text[len(digits) :]
    if len(mode) > 1 or (digits and not (digits.isascii() and digits.isdigit() and len(digits) < 6)):
        raise SpritzError("Invalid --get-user-env specification", exit_code=255)
    return float(digits or 0), mode
