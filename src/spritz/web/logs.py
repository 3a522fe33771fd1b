"""The output of jobs, read where it lies: its end first, what is added to it, what is before, and lines with a text.

Files are read as the user whom the dashboard runs as, who on a cluster of one's own is the job's. A file of any length
is opened at its end; no answer is longer than `PIECE_BYTES`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import stat
from typing import TYPE_CHECKING, Any

from spritz.web.rest import VERSION, RestError

if TYPE_CHECKING:
    from spritz.web.app import View

#: Bytes of one answer, and of a log that are searched, from its end.
PIECE_BYTES, FIND_BYTES = 96 * 1024, 64 * 1024 * 1024

#: Lines that a search finds, and characters of each.
FOUND_MAX, FOUND_LENGTH = 200, 300


#: logs of a run's ranks: RESTART-RANK.log (`spritz.experiments.logs`)
_RANK = re.compile(r"(\d+)-(\d+)\.log\Z")
#: Ranks that a page offers.
_RANKS_MAX = 64


def files_of(detail: dict[str, Any], run: Any = None) -> list[tuple[str, str]]:
    """(name, path) of a job's output; with the job's run, of each rank of its last life too."""
    out, err = detail.get("stdout_expanded", "") or _by_its_command(detail), detail.get("stderr_expanded", "")
    ranks: list[tuple[str, str]] = []
    if run is not None:
        folder = os.path.join(run["directory"], "log")
        try:
            matches = [match for match in map(_RANK.match, os.listdir(folder)) if match]
        except OSError:
            matches = []
        last = max((int(match[1]) for match in matches), default=0)
        numbers = sorted(int(match[2]) for match in matches if int(match[1]) == last)[:_RANKS_MAX]
        ranks = [(f"rank {number}", os.path.join(folder, f"{last}-{number}.log")) for number in numbers]
    found = [*ranks, ("output", out)] if out else ranks
    return [*found, ("errors", err)] if err and err != out else found


def _by_its_command(detail: dict[str, Any]) -> str:
    """Where a job that only accounting remembers wrote to, by its sbatch command: accounting does not keep the path."""
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
    """Where the output lies. Raises RestError."""
    if not view.site.settings.own_files:
        raise RestError("This dashboard does not run as the job's user, so it cannot read the job's output.", 403)
    try:
        answer = await view.rest.get(f"/slurm/{VERSION}/job/{number}", dict)
    except RestError as error:
        if error.status != 404:
            raise
        answer = await view.rest.get(f"/slurmdb/{VERSION}/job/{number}", dict)
    if not answer["jobs"]:
        raise RestError(f"There is no job {number}.", 404)
    name = view.query.get("file", "output")
    run = None
    if name.startswith("rank "):
        from spritz.web.run_pages import run_of_job

        run = await run_of_job(view, number)
    known = dict(files_of(answer["jobs"][-1], run))
    if name not in known:
        raise RestError("The job's output is in no file.", 404)
    return known[name]


async def piece(view: View, number: int) -> dict[str, Any]:
    """`text` from `begin` to `end` of `size` bytes; `problem` in words where there is none."""
    try:
        path = await _path(view, number)
    except RestError as error:
        return {"problem": error.message, "text": "", "begin": 0, "end": 0, "size": 0}
    since, before = view.query.get("from", ""), view.query.get("before", "")
    found = await asyncio.to_thread(
        read, path, int(since) if since.isdigit() else None, int(before) if before.isdigit() else None
    )
    return {"path": path, **found}


def read(path: str, since: int | None = None, before: int | None = None) -> dict[str, Any]:
    """A piece: what follows `since`, what is before `before`, or the end. It begins and ends with a line, if it can."""
    try:
        # A job may name a pipe or a terminal as its output: opening one must not wait.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        problem = "There is no output yet." if isinstance(error, FileNotFoundError) else str(error.strerror)
        return {"problem": problem, "text": "", "begin": 0, "end": 0, "size": 0}
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return {"problem": "The output is no file.", "text": "", "begin": 0, "end": 0, "size": 0}
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        again = since is not None and since > size  # it was written anew
        if since is not None and not again:
            begin, end = max(since, size - PIECE_BYTES), size
            skipped = begin > since
        elif before is not None:
            begin, end = max(0, min(before, size) - PIECE_BYTES), min(before, size)
            skipped = begin > 0
        else:
            begin, end = max(0, size - PIECE_BYTES), size
            skipped = begin > 0
        file.seek(begin)
        data = file.read(end - begin)
    if skipped and (line := data.find(b"\n")) >= 0:
        begin, data = begin + line + 1, data[line + 1 :]
    # A character that is being written is left for the next piece.
    whole = data if before is not None else _without_half(data)
    text = whole.decode("utf-8", "replace")
    return {"text": text, "begin": begin, "end": begin + len(whole), "size": size, "again": again}


def _without_half(data: bytes) -> bytes:
    """Without the beginning of a UTF-8 character at the end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
        if byte & 0xC0 != 0x80:
            break
    return data


async def find(view: View, number: int, text: str) -> dict[str, Any]:
    """`lines` as [place, text] that have `text`, whatever the case, the last of them; from the last 64 MiB."""
    if not text:
        return {"lines": [], "more": False}
    try:
        path = await _path(view, number)
    except RestError as error:
        return {"problem": error.message, "lines": [], "more": False}
    return await asyncio.to_thread(search, path, text)


def search(path: str, text: str) -> dict[str, Any]:
    """The last lines that have `text`."""
    wanted = text.encode().lower()
    lines: list[tuple[int, str]] = []
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            end, rest = size, b""
            while end > 0 and size - end < FIND_BYTES and len(lines) <= FOUND_MAX:
                begin = max(0, end - (1 << 20))
                file.seek(begin)
                data = file.read(end - begin) + rest
                cut = data.find(b"\n") + 1 if begin else 0
                if begin and not cut and len(data) < (4 << 20):
                    rest, end = data, begin
                    continue
                place = begin + cut
                found = []
                for line in data[cut:].split(b"\n"):
                    if wanted in line.lower():
                        found.append((place, _around(line, wanted)))
                    place += len(line) + 1
                lines = found + lines
                rest, end = data[:cut], begin
    except OSError as error:
        return {"problem": error.strerror, "lines": [], "more": False}
    return {"lines": lines[-FOUND_MAX:], "more": len(lines) > FOUND_MAX or end > 0}


def _around(line: bytes, wanted: bytes) -> str:
    at = max(0, line.lower().find(wanted) - 80)
    return line[at : at + FOUND_LENGTH].decode("utf-8", "replace")
