"""--tres-per-task: what each task gets of CPUs, GPUs, other GRES and licenses.

Source: sbatch(1), srun(1) --tres-per-task of 25.05; `gres:gpu:2` is the older form of `gres/gpu=2`.
"""

from __future__ import annotations

from collections.abc import Callable

from spritz.cli.submit.refusals import PARSE_STATUS, Fields, Refusal, invalid
from spritz.model.errors import SpritzError
from spritz.notation import gres
from spritz.notation.errors import NotationError, shown

#: under this name until the number of tasks is known; no field of the request
LICENSES = "licenses_per_task"


def tres_per_task(fields: Fields, value: str, requests: Callable[[tuple[gres.GresRequest, ...]], object]) -> None:
    """`requests` makes records of the model. Raises SpritzError."""
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
                raise invalid("tres-per-task", f"{shown(name)} is none of cpu, gres/NAME and license/NAME")
            fields["cpus_per_task"] = count
    try:
        parsed = gres.parse(",".join(words)) if words else ()
    except NotationError as error:
        raise Refusal("ESLURM_INVALID_GRES", str(error)) from error
    gpus = tuple(one for one in parsed if one.name == "gpu")
    others = tuple(one for one in parsed if one.name != "gpu")
    if gpus:
        fields["gpus_per_task"] = requests(gpus)
    if others:
        fields["gres_per_task"] = requests(others)
    if licenses:
        fields[LICENSES] = tuple(licenses)


def _pair(text: str, item: str) -> tuple[str, int]:
    """`name=count` or `name:count`."""
    name, separator, count = text.partition("=" if "=" in text else ":")
    if not name or not separator or not count.isdecimal() or not count.isascii() or not 0 < int(count) < 1 << 31:
        raise invalid("tres-per-task", f"{shown(item)} is not NAME=COUNT")
    return name, int(count)


def add_licenses(fields: Fields) -> None:
    """Licenses of all tasks, to those of the job. Raises SpritzError."""
    each = fields.pop(LICENSES, None)
    if not isinstance(each, tuple):
        return
    own, tasks = fields.get("licenses") or "", fields.get("tasks", 1)
    assert isinstance(own, str), "it is parsed"
    assert isinstance(tasks, int), "it is parsed"
    if "|" in own:
        message = "--tres-per-task=license/… does not go with a choice of --licenses"
        raise SpritzError(message, exit_code=PARSE_STATUS)
    fields["licenses"] = ",".join([own] * bool(own) + [f"{name}:{count * tasks}" for name, count in each])
