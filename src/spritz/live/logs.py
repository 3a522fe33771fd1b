"""The end of a job's output, made safe for a terminal. Reads only the end, so the file's size does not matter."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from spritz.presentation.job import job_paths

if TYPE_CHECKING:
    from spritz.model.job.record import Job

#: Bytes read from the end of a file, and most bytes of added text read at a time.
TAIL_BYTES = 256 * 1024
#: Most lines kept, and most characters of a line.
LINES_MAX, LINE_MAX = 5_000, 2_000

#: Escape sequences of terminals: CSI, OSC and the like (to their end, or the end of the line), and single ones.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
#: Control characters, and marks that change the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")


def plain(text: str) -> str:
    """A line without control sequences, and without text that a carriage return overwrote."""
    text = text[: 8 * LINE_MAX]
    if not text.isprintable():
        text = _ESCAPES.sub("", text)
        text = text.rstrip("\r\n")
        text = text[text.rfind("\r") + 1 :]
        text = _CONTROLS.sub("\ufffd", text.replace("\t", "    ").replace("\n", " "))
        # Surrogates stand for bytes that are not UTF-8.
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= LINE_MAX else text[:LINE_MAX] + "…"


def output_path(job: Job) -> str:
    """Path of the batch script's output; "" for a job without a script, or whose output is discarded."""
    spec = job.spec
    if not spec.batch:
        return ""
    in_array = job.array_task_id is not None or job.array is not None
    pattern = job_paths.file_pattern(spec.stdout, spec.work_dir, default=job_paths.default_output(in_array))
    return job_paths.expanded(
        pattern,
        job_id=job.id,
        array_job_id=job.array_job_id,
        task_id=job.array_task_id,
        name=spec.name,
        user=spec.user,
        first_host=job.allocation.names[0] if job.allocation else "",
        restarts=job.restart_count,
    )


class Tail:
    """Follows a file. `lines`: its last lines; `problem`: why there are none, "" if there are."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines: list[str] = []
        self.problem = ""
        #: bytes before the first line kept
        self.skipped = 0
        self._at = 0
        self._open_line = b""
        self._identity: tuple[int, int] | None = None

    def read(self) -> bool:
        """Read added text; return whether anything changed. Never blocks: opens only regular files."""
        try:
            info = os.stat(self.path)
            if not stat.S_ISREG(info.st_mode):
                return self._say("not a plain file" if self.path != "/dev/null" else "the job's output is thrown away")
            identity = (info.st_dev, info.st_ino)
            if identity != self._identity or info.st_size < self._at:
                self._identity, self._at, self._open_line, self.lines = identity, 0, b"", []
                self.skipped = 0
            elif info.st_size == self._at:
                return False
            with open(self.path, "rb") as file:
                start = max(self._at, info.st_size - TAIL_BYTES)
                file.seek(start)
                data = file.read(TAIL_BYTES)
        except OSError as error:
            return self._say(error.strerror or str(error))
        if start > self._at:
            self.lines, self._open_line, self.skipped = [], b"", start
            # The first line is incomplete unless the piece begins at its start.
            if (cut := data.find(b"\n")) >= 0:
                start_of_lines = cut + 1
                self.skipped += start_of_lines
                data_of_lines = data[start_of_lines:]
            else:
                data_of_lines = data
            self._at = start + len(data)
            data = data_of_lines
        else:
            self._at = start + len(data)
        self.problem = ""
        if self._open_line and self.lines:
            self.lines.pop()
        pieces = (self._open_line + data).split(b"\n")
        self._open_line = pieces.pop()[-16 * LINE_MAX :]
        new = pieces[-LINES_MAX:]
        if self._open_line:
            new.append(self._open_line)
        self.lines += [plain(_decoded(line)) for line in new]
        if len(self.lines) > LINES_MAX:
            del self.lines[: len(self.lines) - LINES_MAX]
        return True

    def _say(self, problem: str) -> bool:
        changed = self.problem != problem or bool(self.lines)
        self.problem, self.lines, self._identity, self._at, self._open_line = problem, [], None, 0, b""
        return changed


def _decoded(line: bytes) -> str:
    """Decode a line. First drops the earlier states of a progress bar, which may be long."""
    if len(line) > 4 * LINE_MAX:
        cut = line.rstrip(b"\r").rfind(b"\r")
        line = line[cut + 1 :][: 16 * LINE_MAX]
    return line.decode("utf-8", "replace")
