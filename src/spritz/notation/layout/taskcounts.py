"""Run-length encoded counts per node: `2(x3),1`, as in SLURM_TASKS_PER_NODE and SLURM_JOB_CPUS_PER_NODE.

Source: sbatch(1) OUTPUT ENVIRONMENT VARIABLES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.errors import NotationError, shown, unsigned

if TYPE_CHECKING:
    from collections.abc import Iterable

_COUNT_MAX = 0xFFFFFFFF
#: most nodes in one list
NODES_MAX = 65536


class TaskCountError(NotationError):
    """The text is not a list of counts."""


def format(counts: Iterable[int]) -> str:
    """Encode counts: [2, 2, 2, 1] -> `2(x3),1`."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def parse(text: str) -> list[int]:
    """Decode counts: `2(x3),1` -> [2, 2, 2, 1]. Raises TaskCountError."""
    counts: list[int] = []
    for item in text.split(",") if text else ():
        count_text, opening, repeat_text = item.partition("(x")
        count = unsigned(count_text, _COUNT_MAX)
        times = (
            unsigned(repeat_text[:-1], NODES_MAX) if opening and repeat_text.endswith(")") else None if opening else 1
        )
        if count is None or not times:
            raise TaskCountError(f"Invalid count per node: {shown(item)}")
        if len(counts) + times > NODES_MAX:
            raise TaskCountError(f"Too many nodes: {shown(text)}")
        counts += [count] * times
    return counts
