"""Runs site programs (Prolog, EpilogSlurmctld, HealthCheckProgram …) with a time limit, as the daemon's user.

Source: slurm.conf(5) Prolog, Epilog, PrologEpilogTimeout, HealthCheckProgram; patterns run in reverse order.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from spritz.model.scarcity import SCARCE, pauses
from spritz.notation.octets import restored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PIECE_BYTES = 1 << 16
#: Seconds for which a start is retried on a machine that cannot create processes.
_START_PATIENCE_SECONDS = 10.0

#: uid, gid, groups
Runner = tuple[int, int, tuple[int, ...]]


def programs_of(patterns: Sequence[str]) -> list[str]:
    """Paths of the existing programs, in the order in which they run."""
    paths: list[str] = []
    for pattern in patterns:
        paths += sorted(glob.glob(pattern), reverse=True) if glob.has_magic(pattern) else [pattern]
    return paths


async def run_programs(
    patterns: Sequence[str],
    variables: Mapping[str, str],
    timeout_seconds: float,
    arguments: Sequence[str] = (),
    *,
    runner: Runner | None = None,
) -> str:
    """Run programs one after another until one fails. Returns the error, or "".

    `runner`: uid, gid and groups for the programs; None: those of this process.
    """
    for program in programs_of(patterns):
        problem = await _run(program, variables, timeout_seconds, arguments, runner)
        if problem:
            return problem
    return ""


async def _run(
    program: str,
    variables: Mapping[str, str],
    timeout_seconds: float,
    arguments: Sequence[str],
    runner: Runner | None,
) -> str:
    try:
        process = await _start_patiently(program, variables, arguments, runner)
    except OSError as error:
        return f"{program}: {error.strerror}"
    assert process.stdout is not None, "asked for"
    output, exited = process.stdout.fileno(), os.pidfd_open(process.pid)
    try:
        await asyncio.wait_for(_until_quiet(output, exited), timeout_seconds or None)
    except TimeoutError:
        if process.poll() is None:
            _kill_group(process.pid)
            await _readable(exited)
            return f"{program}: not done in {timeout_seconds:g} seconds"
    finally:
        _kill_group(process.pid)
        process.poll()
        os.close(exited)
        process.stdout.close()
    return f"{program}: exit status {process.returncode}" if process.returncode else ""


async def _start_patiently(
    program: str, variables: Mapping[str, str], arguments: Sequence[str], runner: Runner | None
) -> subprocess.Popen[bytes]:
    """As `_start`, retried for a while if the machine is short of processes. Raises OSError."""
    for pause in pauses(_START_PATIENCE_SECONDS):
        try:
            return _start(program, variables, arguments, runner)
        except OSError as error:
            if error.errno not in SCARCE:
                raise
        await asyncio.sleep(pause)
    return _start(program, variables, arguments, runner)


def _start(
    program: str, variables: Mapping[str, str], arguments: Sequence[str], runner: Runner | None
) -> subprocess.Popen[bytes]:
    # Not asyncio's: with uvloop the program inherits further descriptors of its own output, so the output never ends.
    return subprocess.Popen(
        (program, *map(restored, arguments)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        env={name: restored(value) for name, value in variables.items()},
        cwd="/",
        start_new_session=True,
        user=None if runner is None else runner[0],
        group=None if runner is None else runner[1],
        extra_groups=None if runner is None else runner[2],
    )


async def _until_quiet(output: int, exited: int) -> None:
    """Wait until the program has ended and its children have closed its output, as Slurm does."""
    while await _readable(output) and os.read(output, _PIECE_BYTES):
        pass
    await _readable(exited)


async def _readable(descriptor: int) -> bool:
    """Wait until it is readable; returns True."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        return await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _kill_group(pid: int) -> None:
    """Kill the program's remaining processes, except those in a session of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def mail_program(configured: str) -> str:
    """MailProg, or the default: /bin/mail, else /usr/bin/mail. Source: slurm.conf(5) MailProg."""
    if configured == "/bin/mail" and not os.path.exists(configured) and os.path.exists("/usr/bin/mail"):
        return "/usr/bin/mail"
    return configured or "/bin/mail"
