"""Dependencies of jobs: `after:1+5:2,afterok:3_4,singleton`.

Source: sbatch(1) --dependency; scontrol(1) show job, squeue(1) %E for the printed form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer", "singleton")

_ID_MAX = 0xFFFFFFFD
_MINUTES_MAX = 0xFFFFFFFF // 60


class DependencyError(NotationError):
    """The text is not a dependency list. The message begins with Slurm's `Job dependency problem`."""


class Dependency(Value):
    """One condition on another job.

    `task_id` None: the whole job or array. Only `after` uses `minutes`. A singleton names no job (`job_id` 0).
    """

    __slots__ = ("job_id", "kind", "minutes", "task_id")

    def __init__(self, kind: str, job_id: int = 0, task_id: int | None = None, minutes: int = 0) -> None:
        self.kind = kind
        self.job_id = job_id
        self.task_id = task_id
        self.minutes = minutes


def parse(text: str) -> tuple[tuple[Dependency, ...], str]:
    """Conditions in order, and the mode: `all` (commas) or `any` (question marks).

    Empty text: no conditions. Raises DependencyError.
    """
    if not text.strip():
        return (), "all"
    if "," in text and "?" in text:
        raise _problem(text, "`,' and `?' are mixed")
    separator = "?" if "?" in text else ","
    conditions: dict[Dependency, None] = {}
    for item in text.split(separator):
        conditions.update(dict.fromkeys(_parse_item(item.strip(), text)))
    return tuple(conditions), "any" if separator == "?" else "all"


def _parse_item(item: str, text: str) -> list[Dependency]:
    kind, colon, targets = item.partition(":")
    kind = kind.lower()
    if item.isdecimal() or (not colon and kind.partition("_")[0].isdecimal()):
        kind, colon, targets = "afterany", ":", item
    if kind == "singleton":
        if colon:
            raise _problem(text, "singleton takes no job")
        return [Dependency("singleton")]
    if kind not in KINDS:
        raise _problem(text, f"`{shown(kind)}' is none of {', '.join(KINDS)}")
    if not targets:
        raise _problem(text, f"{kind} needs a job id")
    return [_parse_target(kind, target, text) for target in targets.split(":")]


def _parse_target(kind: str, target: str, text: str) -> Dependency:
    body, plus, minutes_text = target.partition("+")
    minutes = unsigned(minutes_text, _MINUTES_MAX) if plus else 0
    if minutes is None or (plus and kind != "after"):
        raise _problem(text, f"`+{shown(minutes_text)}': minutes belong to after")
    job_text, underscore, task_text = body.partition("_")
    job_id = unsigned(job_text, _ID_MAX)
    task_id = unsigned(task_text, _ID_MAX) if underscore and task_text != "*" else None
    if not job_id or (underscore and task_text != "*" and task_id is None):
        raise _problem(text, f"`{shown(target)}' is no job id")
    return Dependency(kind, job_id, task_id, minutes)


def _problem(text: str, why: str) -> DependencyError:
    return DependencyError(f"Job dependency problem: {shown(text)} ({why})")


def format_one(dependency: Dependency, state: str = "", array: bool = False) -> str:
    """`afterok:12(unfulfilled)`, `after:12+5(unfulfilled)`, `singleton(unfulfilled)`; no parentheses without `state`.

    `array`: the target is a whole array, which is printed as `12_*`.
    """
    suffix = f"({state})" if state else ""
    if dependency.kind == "singleton":
        return "singleton" + suffix
    target = str(dependency.job_id)
    if dependency.task_id is not None:
        target += f"_{dependency.task_id}"
    elif array:
        target += "_*"
    minutes = f"+{dependency.minutes}" if dependency.minutes else ""
    return f"{dependency.kind}:{target}{minutes}{suffix}"


def format(dependencies: Iterable[Dependency], mode: str = "all") -> str:
    """Inverse of `parse`; each target is written with its kind, as in Slurm."""
    return ("?" if mode == "any" else ",").join(map(format_one, dependencies))
