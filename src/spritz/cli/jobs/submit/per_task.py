"""--tres-per-task: CPUs, GPUs, other GRES and licenses of each task.

Source: sbatch(1), srun(1) --tres-per-task of 25.05; `gres:gpu:2` is the older form of `gres/gpu=2`.
"""

from __future__ import annotations

from collections.abc import Callable

from spritz.cli.jobs.submit.refusals import PARSE_STATUS, Fields, Refusal, invalid
from spritz.model.errors import SpritzError
from spritz.notation import gres
from spritz.notation.errors import NotationError, shown

#: Key of the licenses per task until the number of tasks is known; not a field of the request.
LICENSES = "licenses_per_task"


def tres_per_task(fields: Fields, value: str, requests: Callable[[tuple[gres.GresRequest, ...]], object]) -> None:
    """Parse the option into `fields`. `requests` makes the model's records of parsed GRES. Raises SpritzError."""
    licenses: list[tuple[str, int]] = []
    words: list[str] = []
    for item in value.split(","):
        kind = item[:5].lower()
        if kind in ("gres/", "gres:"):
            words.append(item)
        elif item[:8].lower() in ("license/", "license:"):
            name, count = _pair(item[8:], item)
            licenses.append((name, count))
        else:
            name, count = _pair(item, item)
            if name.lower() != "cpu":
                raise invalid("tres-per-task", f"{shown(name)} is not cpu, gres/NAME or license/NAME")
            fields["cpus_per_task"] = count
    try:
        parsed = gres.parse(",".join(words)) if words else ()
    except NotationError as error:
        raise Refusal("ESLURM_INVALID_GRES", str(error)) from error
    gpus = tuple(request for request in parsed if request.name == "gpu")
    others = tuple(request for request in parsed if request.name != "gpu")
    if gpus:
        fields["gpus_per_task"] = requests(gpus)
    if others:
        fields["gres_per_task"] = requests(others)
    if licenses:
        fields[LICENSES] = tuple(licenses)


def _pair(text: str, item: str) -> tuple[str, int]:
    """Parse `name=count` or `name:count`. Raises SpritzError that quotes `item`."""
    name, separator, count = text.partition("=" if "=" in text else ":")
    if not name or not separator or not count.isdecimal() or not count.isascii() or not 0 < int(count) < 1 << 31:
        raise invalid("tres-per-task", f"{shown(item)} is not NAME=COUNT")
    return name, int(count)


def add_licenses(fields: Fields) -> None:
    """Add the licenses of all tasks to those of the job. Raises SpritzError."""
    per_task = fields.pop(LICENSES, None)
    if not isinstance(per_task, tuple):
        return
    licenses, tasks = fields.get("licenses") or "", fields.get("tasks", 1)
    assert isinstance(licenses, str), "parsed by its setter"
    assert isinstance(tasks, int), "parsed by its setter"
    if "|" in licenses:
        message = "--tres-per-task=license/… does not go with a choice of --licenses"
        raise SpritzError(message, exit_code=PARSE_STATUS)
    fields["licenses"] = ",".join([licenses] * bool(licenses) + [f"{name}:{count * tasks}" for name, count in per_task])
