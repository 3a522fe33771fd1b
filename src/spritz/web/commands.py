"""Slurm's and `spritz`'s commands as functions, for actions without a REST request: submitting with #SBATCH lines and
`--test-only`, suspending, and runs.

They run with the viewer's privileges: on a user's own cluster as that user; on a site with the viewer's token in
SLURM_JWT, and as a process of the viewer (`users`) if the arguments can name files.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from spritz.http.rest import RestError
from spritz.timeouts import within

if TYPE_CHECKING:
    from spritz.web.users import Account

#: Time limit of a command, and most bytes of its output.
SECONDS, OUTPUT_BYTES = 60.0, 64 * 1024 * 1024


def path_of(name: str) -> str:
    """Path of a command: in the directory of this Python, else on PATH. Raises RestError."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    path = beside if os.access(beside, os.X_OK) else shutil.which(name)
    if not path:
        raise RestError(f"The command {name} is not installed here.")
    return path


async def run(
    name: str,
    *words: str,
    token: str = "",
    given: str = "",
    directory: str = "",
    user: Account | None = None,
    seconds: float = SECONDS,
) -> tuple[int, str, str]:
    """Run a command; return (exit status, output, errors). `given`: its standard input. `user`: run as this user.

    Raises RestError if the command cannot start or takes too long.
    """
    # `spritz` runs squeue and others by name: put this installation's directory first on PATH.
    path = os.pathsep.join(filter(None, (os.path.dirname(path_of(name)), os.environ.get("PATH", ""))))
    variables = dict(os.environ) if user is None else user.environment
    environment = {**variables, "PATH": path, "NO_COLOR": "1", "COLUMNS": "200"}
    if token:
        environment["SLURM_JWT"] = token
    try:
        process = await asyncio.create_subprocess_exec(
            path_of(name), *words, env=environment, cwd=directory or ("/" if user is not None else None),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            limit=OUTPUT_BYTES, start_new_session=True, **(user.process if user is not None else {}),
        )  # fmt: skip
    except (OSError, ValueError) as error:  # ValueError: an argument has a NUL character
        raise RestError(f"{name} cannot be run: {getattr(error, 'strerror', None) or error}", 400) from error
    try:
        async with within(seconds):
            out, err = await process.communicate(given.encode("utf-8", "replace"))
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise RestError(f"{name} takes longer than {seconds:.0f} s.") from error
    assert process.returncode is not None
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


async def answer(name: str, *words: str, user: Account | None = None) -> Any:
    """The decoded JSON output of a command. Raises RestError with its error message."""
    status, out, err = await run(name, *words, user=user)
    try:
        return json.loads(out)
    except ValueError as error:
        raise RestError(plain(err) or f"{name} ended with status {status} and no answer.", 404) from error


def plain(errors: str) -> str:
    """An error message without the leading name of the command."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return " ".join(
        line.partition(": ")[2] if line.startswith(("sbatch: ", "spritz: ", "scontrol: ")) else line for line in lines
    )
