"""Output of jobs, read from its file: the end first, then additions, earlier parts, or lines that contain a text.

Reads files with the viewer's privileges (`users`), from the end, so that their length does not matter. No answer is
longer than `reading.PIECE_BYTES`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spritz.http.rest import RestError
from spritz.web import reading, users
from spritz.web.details import detail_of

if TYPE_CHECKING:
    from spritz.web.app import View


def files_of(detail: dict[str, Any], ranks: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """(name, path) of a job's output files, preceded by `ranks`: those of the ranks of its run."""
    out, err = detail.get("stdout_expanded", "") or _by_its_command(detail), detail.get("stderr_expanded", "")
    files = [*ranks, ("output", out)] if out else list(ranks)
    return [*files, ("errors", err)] if err and err != out else files


async def ranks_of(view: View, run: Any) -> list[tuple[str, str]]:
    """(`rank 0`, path) for each rank of a run, since its last restart."""
    if run is None:
        return []
    try:
        ranks = await users.call(view, reading.ranks, os.path.join(run["directory"], "log"))
    except RestError:
        return []
    return [(name, path) for name, path in ranks]


def _by_its_command(detail: dict[str, Any]) -> str:
    """Path of the output of a job that the controller has forgotten, from its sbatch command: accounting does not store
    the path.
    """
    directory, number = detail.get("working_directory", ""), str(detail.get("job_id", ""))
    try:
        words = shlex.split(detail.get("submit_line", ""))
    except ValueError:
        words = detail.get("submit_line", "").split()
    if not directory or not words or os.path.basename(words[0]) != "sbatch":
        return ""
    array = detail.get("array") or {}
    task, parent = array.get("task_id") or {}, array.get("job_id") or 0
    of_array = bool(task.get("set") and parent)
    name = "slurm-%A_%a.out" if of_array else "slurm-%j.out"
    for place, word in enumerate(words[1:], 1):
        if word in ("-o", "--output") and place + 1 < len(words):
            name = words[place + 1]
        elif word.startswith("--output="):
            name = word.partition("=")[2]
        elif word == "--wrap" or word.startswith("--wrap="):
            break
    values = {
        "%j": number,
        "%A": str(parent) if of_array else number,
        "%a": str(task.get("number", 0)) if of_array else "4294967294",
        "%x": detail.get("name", ""),
        "%u": detail.get("user", ""),
        "%%": "%",
    }
    return os.path.join(directory, re.sub("%[jAaxu%]", lambda match: values[match[0]], name))


async def _path(view: View, number: int) -> str:
    """Path of the job's output. Raises RestError.

    A job's owner says where its output goes, also after it was shared. So the rights of the user who shares it open no
    file that another user names.
    """
    share = view.session.share
    if share is not None and share.owner != (share.user or await asyncio.to_thread(users.name_of, os.geteuid())):
        raise RestError("The output of a job is shared by its own user only.", 403)
    detail = await detail_of(view, number)
    name = view.query.get("file", "output")
    ranks: list[tuple[str, str]] = []
    if name.startswith("rank "):
        from spritz.web.run_pages import run_of_job

        ranks = await ranks_of(view, await run_of_job(view, detail))
    known = dict(files_of(detail, ranks))
    if name not in known:
        raise RestError("The job's output does not go to a file.", 404)
    return known[name]


async def piece(view: View, number: int) -> dict[str, Any]:
    """`text` from byte `begin` to `end` of a file of `size` bytes; or `problem`, a message."""
    since, before = view.query.get("from", ""), view.query.get("before", "")
    words = _offset(since), _offset(before)
    try:
        path = await _path(view, number)
        answer = await users.call(view, reading.read, path, *words)
    except RestError as error:
        return {"problem": error.message, "text": "", "begin": 0, "end": 0, "size": 0}
    return {"path": path, **answer}


def _offset(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


async def find(view: View, number: int, text: str) -> dict[str, Any]:
    """`lines`: [offset, text] of the last lines that contain `text` in any case, within the last 64 MiB."""
    if not text:
        return {"lines": [], "more": False}
    try:
        answer: dict[str, Any] = await users.call(view, reading.search, await _path(view, number), text)
    except RestError as error:
        return {"problem": error.message, "lines": [], "more": False}
    return answer
