"""Labels each line of output with its task (`srun --label`), in the client or in a node's file. Pure.

Source: srun(1) --label; recorded output of 22.05.
"""

from __future__ import annotations


class Labels:
    """`0: ` before each line, as wide as the largest rank; a last line without an end gets one."""

    def __init__(self, tasks: int) -> None:
        self._width = len(str(tasks - 1))
        self._unfinished: set[tuple[int, int]] = set()

    def apply(self, task: int, stream: int, data: bytes) -> bytes:
        """`data` of one stream (empty: its end) with labels."""
        key = (task, stream)
        if not data:
            if key not in self._unfinished:
                return b""
            self._unfinished.discard(key)
            return b"\n"
        label = b"%*d: " % (self._width, task)
        begins = b"" if key in self._unfinished else label
        if data.endswith(b"\n"):
            self._unfinished.discard(key)
            return begins + data[:-1].replace(b"\n", b"\n" + label) + b"\n"
        self._unfinished.add(key)
        return begins + data.replace(b"\n", b"\n" + label)
