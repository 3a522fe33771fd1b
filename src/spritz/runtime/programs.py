"""Running the site's programs (Prolog, EpilogSlurmctld, HealthCheckProgram …): as ourselves, with a time limit.

Source: slurm.conf(5) Prolog, Epilog, PrologEpilogTimeout, HealthCheckProgram; patterns run in reverse order.
"""

from __future__ import annotations

import asyncio
import glob
import os
import signal
from typing import TYPE_CHECKING

from spritz.notation.octets import restored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def programs_of(patterns: Sequence[str]) -> list[str]:
    """Paths of the programs that are there, in the order in which they run."""
    found: list[str] = []
    for pattern in patterns:
        found += sorted(glob.glob(pattern), reverse=True) if glob.has_magic(pattern) else [pattern]
    return found


async def run_programs(
    patterns: Sequence[str], variables: Mapping[str, str], timeout_seconds: float, arguments: Sequence[str] = ()
) -> str:
    """Run them one after the other until one fails. What went wrong, or "" if nothing did."""
    for program in programs_of(patterns):
        problem = await _run(program, variables, timeout_seconds, arguments)
        if problem:
            return problem
    return ""


async def _run(program: str, variables: Mapping[str, str], timeout_seconds: float, arguments: Sequence[str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *map(restored, arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: restored(value) for name, value in variables.items()},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return f"{program}: {error.strerror}"
    try:
        status = await asyncio.wait_for(process.wait(), timeout_seconds or None)
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        return f"{program}: not done in {timeout_seconds:g} seconds"
    except asyncio.CancelledError:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return f"{program}: exit status {status}" if status else ""


def mail_program(configured: str) -> str:
    """MailProg, or the default: /bin/mail, else /usr/bin/mail. Source: slurm.conf(5) MailProg."""
    if configured == "/bin/mail" and not os.path.exists(configured) and os.path.exists("/usr/bin/mail"):
        return "/usr/bin/mail"
    return configured or "/bin/mail"
