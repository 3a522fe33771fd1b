"""Runs site programs (Prolog, EpilogSlurmctld, HealthCheckProgram …) with a time limit, as the daemon's user.

Source: slurm.conf(5) Prolog, Epilog, PrologEpilogTimeout, HealthCheckProgram; patterns run in reverse order.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from spritz.model.scarcity import SCARCE, pauses
from spritz.notation.octets import restored
from spritz.notation.signals import signal_description
from spritz.timeouts import within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PIECE_BYTES = 1 << 16
#: bytes of a failed program's output that are kept: the last
_KEPT_BYTES = 1 << 10
#: Seconds for which a start is retried on a machine that cannot create processes.
_START_PATIENCE_SECONDS = 10.0

#: uid, gid, groups
Runner = tuple[int, int, tuple[int, ...]]


class Failure(NamedTuple):
    """A program that failed. `problem`: its path and how; `output`: the end of what it printed, for logs: it may have
    run as root, and users see the problem.
    """

    problem: str
    output: str = ""


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
) -> Failure | None:
    """Run programs one after another until one fails. Returns the failure, or None.

    `runner`: uid, gid and groups for the programs; None: those of this process.
    """
    for program in programs_of(patterns):
        failure = await _run(program, variables, timeout_seconds, arguments, runner)
        if failure is not None:
            return failure
    return None


async def _run(
    program: str,
    variables: Mapping[str, str],
    timeout_seconds: float,
    arguments: Sequence[str],
    runner: Runner | None,
) -> Failure | None:
    try:
        process = await _start_patiently(program, variables, arguments, runner)
    except OSError as error:
        return Failure(f"{program}: {error.strerror}")
    assert process.stdout is not None, "asked for"
    output, exited = process.stdout.fileno(), os.pidfd_open(process.pid)
    printed = bytearray()
    try:
        async with within(timeout_seconds or None):
            await _until_quiet(output, exited, printed)
    except TimeoutError:
        if not _has_ended(exited):
            _kill_group(process.pid)
            await _readable(exited)
            return Failure(f"{program}: not done in {timeout_seconds:g} seconds", _text(printed))
    finally:
        _kill_group(process.pid)  # before it is waited for: then its number, and its group's, may be another's
        process.poll()
        os.close(exited)
        process.stdout.close()
    return Failure(f"{program}: {_ending(process.returncode)}", _text(printed)) if process.returncode else None


def _started(words: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env=dict(variables),
        cwd="/",
        start_new_session=True,
    )


async def output_of(words: Sequence[str], variables: Mapping[str, str], timeout_seconds: float) -> tuple[int, str]:
    """Exit status, and what a program prints (the last 64 KiB). Raises OSError, and TimeoutError: then it is killed."""
    process = _started(words, variables)
    assert process.stdout is not None, "asked for"
    output, exited = process.stdout.fileno(), os.pidfd_open(process.pid)
    printed = bytearray()
    try:
        async with within(timeout_seconds):
            await _until_quiet(output, exited, printed, _PIECE_BYTES)
    finally:
        _kill_group(process.pid)  # before it is waited for, as above
        if not _has_ended(exited):
            await _readable(exited)
        process.poll()
        os.close(exited)
        process.stdout.close()
    return process.returncode or 0, printed.decode(errors="replace")


def _text(printed: bytearray) -> str:
    return printed.decode(errors="replace").strip()


def _ending(status: int) -> str:
    """How a process ended, by `Popen.returncode`."""
    return f"exit status {status}" if status > 0 else f"killed by signal {-status} ({signal_description(-status)})"


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


async def _until_quiet(output: int, exited: int, printed: bytearray, kept_bytes: int = _KEPT_BYTES) -> None:
    """Wait until the program has ended and its children have closed its output, as Slurm does. `printed`: its end."""
    while await _readable(output) and (piece := os.read(output, _PIECE_BYTES)):
        printed += piece
        del printed[:-kept_bytes]
    await _readable(exited)


def _has_ended(exited: int) -> bool:
    """By its pidfd, without waiting for it."""
    ended = select.poll()
    ended.register(exited, select.POLLIN)
    return bool(ended.poll(0))


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
