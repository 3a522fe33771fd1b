"""The other steps of the job on this node, whose memory counts towards the job's limit where no cgroup holds it.

Each supervisor looks for itself, in the spool and in /proc: this works while slurmd is away, and takes no messages.
"""

from __future__ import annotations

import os

from spritz.model.stored import UnsupportedFormat
from spritz.stepd import processes, record
from spritz.stepd.spec import RECORD


class Siblings:
    """Of the step in this spool directory."""

    def __init__(self, directory: str) -> None:
        self._spool, self._own = os.path.split(directory)
        #: what directories of this job's life begin with, such as `job00012.0.`
        self._prefix = f"{self._own.rpartition('.')[0]}."
        #: by directory: the record's size when it was read, and the supervisor's process id (0: none runs)
        self._known: dict[str, tuple[int, int]] = {}

    def memory_bytes(self) -> list[int]:
        """The memory of each of them, as `StepUsage.sample` counts it."""
        return [
            sum(processes.memory_bytes(pid)[0] for pid in processes.descendants(supervisor))
            for supervisor in self._supervisors()
        ]

    def _supervisors(self) -> list[int]:
        try:
            names = os.listdir(self._spool)
        except OSError:
            return []
        others = [name for name in names if name.startswith(self._prefix) and name != self._own]
        return [pid for name in others if (pid := self._supervisor(name))]

    def _supervisor(self, name: str) -> int:
        path = f"{self._spool}/{name}/{RECORD}"
        try:
            size = os.stat(path).st_size
            if (known := self._known.get(name)) is None or known[0] != size:
                step = record.read(path)
                running = step is not None and step.result is None and step.pids
                known = self._known[name] = (size, running[0] if running else 0)
        except (OSError, UnsupportedFormat):
            return 0
        return known[1]
