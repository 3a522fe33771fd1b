"""The caller's context that a request carries: directory, umask, limits, environment, host.

Source: sbatch(1) --export, --export-file, --propagate, --chdir.
"""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.model.job.record import ResourceLimit

if TYPE_CHECKING:
    from pwd import struct_passwd
    from typing import Any

    from spritz.cli.call.context import Context

#: Resource limits that Slurm propagates, in its order, with their numbers in the system.
LIMITS = {
    name: getattr(resource, f"RLIMIT_{name}")
    for name in ("FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS", "CPU")
}


def umask() -> int:
    """The process's umask. Sets it briefly in order to read it, which is safe because a command has a single thread."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def become(uid: int, gid: int) -> None:
    """Change for good from root to the job's user; does nothing if the process has that user already.

    Source: srun(1) --uid: srun drops its permissions once the nodes are allocated. Raises SpritzError.
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


def limits(propagate: str | None) -> tuple[ResourceLimit, ...]:
    """The soft limits to send: all, none, or those that `--propagate` names. Raises SpritzError for an unknown name."""
    names = list(LIMITS)
    if propagate is not None and propagate.upper() not in ("", "ALL"):
        names = [] if propagate.upper() == "NONE" else propagate.split(",")
    limits_to_send = []
    for word in names:
        name = word.upper().removeprefix("RLIMIT_")
        if name not in LIMITS:
            raise SpritzError(f"--propagate={propagate} is not valid.", details=(f"Bad rlimit name: {word}",))
        limits_to_send.append(ResourceLimit(name, resource.getrlimit(LIMITS[name])[0]))
    return tuple(limits_to_send)


def exported(context: Context, export: str | None) -> dict[str, str]:
    """The environment that `--export` selects. NONE and NIL keep only SLURM_ and SPANK_ variables."""
    environ = context.environ
    if not export or export.upper() == "ALL":
        return dict(environ)
    slurm_variables = {name: value for name, value in environ.items() if name.startswith(("SLURM_", "SPANK_"))}
    if export.upper() in ("NONE", "NIL"):
        return slurm_variables
    words, unclosed = _export_words(export)
    if unclosed:
        context.error(f"Improperly formed environment variable ({unclosed})")
    chosen = dict(environ) if _has_all(words) else slurm_variables
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            chosen[name] = value
        elif name in environ and word.upper() != "ALL":
            chosen[name] = environ[name]
    return chosen


def needs_login_environment(export: str | None) -> bool:
    """Whether `--export` lacks ALL: a batch script then gets its user's login environment."""
    if not export or export.upper() in ("ALL", "NIL"):
        return False
    return not _has_all(_export_words(export)[0])


def _has_all(words: list[str]) -> bool:
    return any(word.upper() == "ALL" for word in words)


#: Variables that describe the enclosing job, and are wrong in a job that is submitted from inside it.
_OF_A_JOB = (
    "SLURM_ARRAY_ SLURM_CPUS_ SLURM_CPU_BIND SLURM_DIST SLURM_EXPORT_ENV SLURM_GET_USER_ENV SLURM_GPU SLURM_GTIDS "
    "SLURM_JOB SLURM_LAUNCH_ SLURM_LOCALID SLURM_MEM_ SLURM_NNODES SLURM_NODE SLURM_NPROCS SLURM_NTASKS "
    "SLURM_OVERCOMMIT SLURM_PRIO_PROCESS SLURM_PROCID SLURM_RESTART_COUNT SLURM_SRUN_ SLURM_STEP SLURM_TASK "
    "SLURM_THREADS_PER_CORE SLURM_TOPOLOGY_ SLURM_TRES_ SLURM_UMASK SLURMD_NODENAME"
)


def without_enclosing_job(environ: dict[str, str]) -> dict[str, str]:
    """The environment without variables of the enclosing job. Differs: Slurm lets them leak into the new job."""
    if "SLURM_JOB_ID" not in environ:
        return environ
    prefixes = tuple(_OF_A_JOB.split())
    return {name: value for name, value in environ.items() if not name.startswith(prefixes)}


_LOGIN_SECONDS = 8.0


def login_environment(user: str | None = None, *, mode: str = "", seconds: float = 0.0) -> dict[str, str]:
    """The variables that the user's login shell sets (mode S: a shell that is not a login shell).

    Returns `least_environment` if the shell does not answer in time. Source: sbatch(1) --get-user-env.
    """
    import pwd
    import subprocess

    entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    least = least_environment(entry)
    # The user's profile runs with the user's privileges, even if root submits with --uid.
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
    """The variables of every login: HOME, SHELL, USER, LOGNAME, PATH."""
    return {
        "HOME": entry.pw_dir,
        "LOGNAME": entry.pw_name,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "SHELL": entry.pw_shell or "/bin/sh",
        "USER": entry.pw_name,
    }


def _export_words(export: str) -> tuple[list[str], str]:
    """The words of --export, separated by commas, and the one whose quotes are not closed ("": none).

    Commas inside quotes do not separate. Quotes belong to a value unless they enclose the whole word: JSON stays JSON.
    Source: Slurm 22.05 and 26.05, which take such an open word as it is, after an error.
    """
    words, start, single, double = [], 0, False, False
    for end, letter in enumerate((*export, "")):
        if letter == "'":
            single = not single
        elif letter == '"':
            double = not double
        elif letter in (",", "") and not (single or double):
            word = export[start:end]
            words.append(word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word)
            start = end + 1
    unclosed = export[start:] if single or double else ""
    return [word for word in (*words, unclosed) if word], unclosed


def environment_file(path: str) -> dict[str, str]:
    """Variables of `--export-file`: NAME=value, separated by NUL. `path` may be the number of an open file descriptor.

    Raises SpritzError if it cannot be read.
    """
    try:
        with open(int(path) if path.isdecimal() else path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise SpritzError(f"Could not open user environment file {path}") from error
    pairs = (entry.partition(b"=") for entry in content.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in pairs if name and equals}


def encoded(environ: dict[str, str]) -> tuple[bytes, ...]:
    """The variables as `NAME=value`; bytes that are not UTF-8 are preserved."""
    if not environ:
        return ()
    return tuple(os.fsencode("\0".join([f"{name}={value}" for name, value in environ.items()])).split(b"\0"))


def user_env_option(text: str) -> tuple[float, str]:
    """Parse --get-user-env=[seconds][mode]; mode is S or L. Raises SpritzError."""
    digits = text.rstrip("SLsl")
    mode = text[len(digits) :]
    if len(mode) > 1 or (digits and not (digits.isascii() and digits.isdigit() and len(digits) < 6)):
        raise SpritzError("Invalid --get-user-env specification", exit_code=255)
    return float(digits or 0), mode
