"""Run Slurm's and our own commands as the user, and collect their output and exit status."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz import installed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SECONDS = 60.0
#: Most bytes kept of a command's output.
_OUTPUT_MAX = 16 << 20


class Done(Struct, frozen=True, kw_only=True):
    """A command that has ended. `words`: its command line; `status`: exit status, 124 on time-out, 127 if not found."""

    words: tuple[str, ...]
    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The error messages on a single line; "" if the command succeeded silently."""
        lines = [line.strip() for line in self.err.strip().splitlines() if line.strip()]
        return "; ".join(lines) or (f"{self.words[0]} ended with {self.status}" if self.status else "")


def run(
    words: Sequence[str],
    *,
    conf: str | None = None,
    columns: int = 0,
    stdin: str = "",
    cwd: str | None = None,
    seconds: float = _SECONDS,
    environment: Mapping[str, str] | None = None,
) -> Done:
    """Run a command of this installation to its end. `conf`: the slurm.conf to find the cluster by."""
    path = installed.command(words[0])
    if not os.access(path, os.X_OK):
        path = words[0]
    environ = dict(os.environ if environment is None else environment)
    if conf:
        environ["SLURM_CONF"] = conf
    if columns:
        environ["COLUMNS"] = str(columns)
    environ["NO_COLOR"] = "1"
    command_line = tuple(words)
    try:
        done = subprocess.run(
            [path, *words[1:]],
            input=stdin.encode("utf-8", "surrogateescape"),
            capture_output=True,
            timeout=seconds,
            cwd=cwd,
            env=environ,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Done(words=command_line, status=124, out="", err=f"{words[0]} did not answer in {seconds:g} s")
    except (OSError, ValueError) as error:
        return Done(
            words=command_line, status=127, out="", err=f"{words[0]}: {getattr(error, 'strerror', '') or error}"
        )
    out = done.stdout[:_OUTPUT_MAX].decode("utf-8", "replace")
    return Done(words=command_line, status=done.returncode, out=out, err=done.stderr[:65536].decode("utf-8", "replace"))
