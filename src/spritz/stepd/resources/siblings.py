"""The other steps of the job on this node, whose memory counts towards the job's limit where no cgroup holds it.

Each supervisor looks for itself, in the spool and in /proc: this works while slurmd is away, and takes no messages.
"""

from __future__ import annotations

import os

from spritz.model.errors import UnsupportedFormat
from spritz.process_identity import Process, lives
from spritz.stepd import processes, record
from spritz.stepd.spec import RECORD

#: Seconds until the next look, for each step that the last one found. A look costs about 0.1 ms a step, and all steps
#: of a job look: a hundred of them would otherwise keep a processor busy.
_EACH_SECONDS = 0.05


class Siblings:
    """The steps of a job, as seen from the step in this spool directory."""

    def __init__(self, directory: str) -> None:
        self._spool, self._own = os.path.split(directory)
        #: the prefix of the directories of this job's life, such as `job00012.0.`
        self._prefix = f"{self._own.rpartition('.')[0]}."
        #: by directory: the record's size when it was read, and its supervisor (None: none runs)
        self._known: dict[str, tuple[int, Process | None]] = {}
        #: the result of the last look, and the time of the next one
        self._memory: list[int] = []
        self._due = 0.0

    def memory_bytes(self, now: float) -> list[int]:
        """The memory as of `look`, or of the last look if that was a moment ago. `now`: monotonic seconds."""
        if now >= self._due:
            self.look()
            self._due = now + _EACH_SECONDS * len(self._memory)
        return self._memory

    def look(self) -> list[int]:
        """The memory of each of them now, as `StepUsage.sample` counts it."""
        self._memory = [
            sum(processes.memory_bytes(pid)[0] for pid in processes.descendants(supervisor))
            for supervisor in self._supervisors()
        ]
        return self._memory

    def _supervisors(self) -> list[int]:
        try:
            names = os.listdir(self._spool)
        except OSError:
            return []
        others = [name for name in names if name.startswith(self._prefix) and name != self._own]
        return [process.pid for name in others if (process := self._supervisor(name)) is not None and lives(process)]

    def _supervisor(self, name: str) -> Process | None:
        path = f"{self._spool}/{name}/{RECORD}"
        try:
            size = os.stat(path).st_size
            if (known := self._known.get(name)) is None or known[0] != size:
                step = record.read(path)
                running = step is not None and step.result is None and step.pids
                known = self._known[name] = (size, step.supervisor() if step is not None and running else None)
        except (OSError, UnsupportedFormat):
            return None
        return known[1]
