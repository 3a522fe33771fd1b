"""Ids of jobs, array tasks, heterogeneous components and steps: `123`, `123_4`, `123_[1-5,7%2]`, `123+1`, `123.0`,
`123_4.batch`.

Source: squeue(1) --jobs, --steps; scancel(1); scontrol(1) show job, show step.
"""

from __future__ import annotations

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.ranges import BITSTR_LEN, RangeError, format_array, parse_array
from spritz.notation.value import Value

#: Pseudo steps; the numbers are those of slurm.h.
STEP_EXTERN = 0xFFFFFFFC
STEP_BATCH = 0xFFFFFFFB
STEP_INTERACTIVE = 0xFFFFFFFA

#: largest job, task, component and step number
JOB_ID_MAX = 0xFFFFFFFD
STEP_ID_MAX = 0xFFFFFFEF

_STEP_NUMBERS = {
    "extern": STEP_EXTERN,
    "batch": STEP_BATCH,
    "interactive": STEP_INTERACTIVE,
    "int": STEP_INTERACTIVE,
}
_STEP_NAMES = {STEP_EXTERN: "extern", STEP_BATCH: "batch", STEP_INTERACTIVE: "interactive"}


class JobIdError(NotationError):
    """The text is not the id of a job or step."""


class JobReference(Value):
    """The meaning of an id: a job; with `task_ids` (mask) some tasks of an array; with `component` a component of a
    heterogeneous job; with `step` a step.

    `throttle` is the `%N` in the brackets of a listing; it names nothing.
    """

    __slots__ = ("component", "job_id", "step", "task_ids", "throttle")

    def __init__(
        self,
        job_id: int,
        task_ids: int | None = None,
        component: int | None = None,
        step: int | None = None,
        throttle: int = 0,
    ) -> None:
        self.job_id = job_id
        self.task_ids = task_ids
        self.component = component
        self.step = step
        self.throttle = throttle

    @property
    def task_id(self) -> int | None:
        """The array task, if the id names exactly one; else None."""
        if self.task_ids is None or self.task_ids.bit_count() != 1:
            return None
        return self.task_ids.bit_length() - 1


def parse(text: str) -> JobReference:
    """The meaning of the id. Raises JobIdError: `Invalid job id specified: …`."""
    body, dot, step_text = text.strip().partition(".")
    step = _step_number(step_text) if dot else None
    if dot and step is None:
        raise _invalid(text)
    head, underscore, tasks = body.partition("_")
    component: int | None = None
    task_ids: int | None = None
    throttle = 0
    if underscore:
        task_ids, throttle = _tasks(tasks, text)
    else:
        head, plus, part = body.partition("+")
        component = unsigned(part, JOB_ID_MAX) if plus else None
        if plus and component is None:
            raise _invalid(text)
    job_id = unsigned(head, JOB_ID_MAX)
    if not job_id:
        raise _invalid(text)
    return JobReference(job_id, task_ids, component, step, throttle)


def parse_list(text: str) -> list[JobReference]:
    """Comma list of ids; commas inside brackets belong to the id. Empty items are errors. Raises JobIdError."""
    items = text.split(",")
    references: list[JobReference] = []
    held: list[str] = []
    for item in items:
        held.append(item)
        if "[" in held[0] and "]" not in item:
            continue
        references.append(parse(",".join(held)))
        held = []
    if held:
        raise _invalid(text)
    return references


def _tasks(text: str, whole: str) -> tuple[int | None, int]:
    if text == "*":
        return None, 0
    bracketed = text.startswith("[")
    try:
        spec = parse_array(text)
    except RangeError as error:
        raise _invalid(whole) from error
    if not bracketed and ("," in text or "%" in text):
        raise _invalid(whole)
    return spec.ids, spec.throttle


def _step_number(text: str) -> int | None:
    return _STEP_NUMBERS.get(text.lower()) if len(text) < 12 and text.isalpha() else unsigned(text, STEP_ID_MAX)


def _invalid(text: str) -> JobIdError:
    return JobIdError(f"Invalid job id specified: {shown(text)}")


def format(reference: JobReference, length: int = BITSTR_LEN) -> str:
    """Inverse of `parse`; task ids beyond `length` characters are cut as squeue does (0: never)."""
    text = format_job(reference.job_id, reference.task_ids, reference.component, reference.throttle, length)
    return text if reference.step is None else f"{text}.{step_name(reference.step)}"


def format_job(
    job_id: int, task_ids: int | None = None, component: int | None = None, throttle: int = 0, length: int = BITSTR_LEN
) -> str:
    """`123`, `123_4`, `123_[1-5%2]`, `123+1`. A single task has no brackets unless there is a throttle."""
    if component is not None:
        return f"{job_id}+{component}"
    if task_ids is None:
        return str(job_id)
    if task_ids.bit_count() == 1 and not throttle:
        return f"{job_id}_{task_ids.bit_length() - 1}"
    return format_pending(job_id, task_ids, throttle, length)


def format_pending(job_id: int, task_ids: int, throttle: int = 0, length: int = BITSTR_LEN) -> str:
    """Array tasks that share one record, as squeue lists them: always in brackets, even `123_[4]`."""
    return f"{job_id}_[{format_array(task_ids, throttle, length)}]"


def step_name(step: int) -> str:
    """Name of a step: its number, `batch`, `extern` or `interactive`."""
    return _STEP_NAMES.get(step) or str(step)
