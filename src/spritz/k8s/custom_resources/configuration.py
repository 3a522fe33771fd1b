"""Checks the slurm.conf of a SpritzCluster before its daemons get it: slurmctld would not start with mistakes in it.

Uses the installed command `spritz config check`, as a site's own programs would.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from spritz.timeouts import within

#: Seconds for the command, and characters of its mistakes that a condition has.
_TIMEOUT, _LENGTH = 60.0, 600


class _Diagnostic(msgspec.Struct):
    severity: str
    message: str
    line: int = 0
    hint: str = ""


class _Report(msgspec.Struct):
    diagnostics: list[_Diagnostic] = []


async def mistakes(text: str, extra: str) -> str:
    """What is wrong with a slurm.conf whose last lines are `extra`, with the field; "" if it can be used."""
    # In memory: the operator's file systems are read-only.
    descriptor = os.memfd_create("slurm.conf", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        program = shutil.which("spritz") or str(Path(sys.executable).parent / "spritz")
        words = ["config", "check", "--json", "--kind", "slurm.conf", f"/proc/self/fd/{descriptor}"]
        process = await asyncio.create_subprocess_exec(
            program, *words, pass_fds=[descriptor], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            async with within(_TIMEOUT):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:  # the operator stops, or it took too long
                process.kill()
                await process.communicate()
    finally:
        os.close(descriptor)
    first = len(text.splitlines()) - len(extra.splitlines())
    return _sentence(msgspec.json.decode(out, type=_Report).diagnostics, first)


def _sentence(diagnostics: list[_Diagnostic], first: int) -> str:
    sentences = []
    for diagnostic in diagnostics:
        if diagnostic.severity == "error":
            where = f"spec.extraConfig, line {diagnostic.line - first}: " if diagnostic.line > first else ""
            sentences.append(f"{where}{diagnostic.message}" + (f" ({diagnostic.hint})" if diagnostic.hint else ""))
    return "; ".join(sentences)[:_LENGTH]
