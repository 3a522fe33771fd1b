"""Every option of Slurm's is known to our command of that name: it works, it is taken with a warning, or it is refused
with a reason. None is unknown, and none is an abbreviation by chance.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tools.compatibility.entries import rows

from spritz.cli import sbatch
from spritz.cli.call.context import Context
from spritz.cli.jobs.launch.request import step_environment
from spritz.cli.jobs.submit import spec
from spritz.cli.jobs.submit.hardware import SETTERS
from spritz.cli.jobs.submit.refusals import Source
from spritz.cli.jobs.submit.rows import NO_EFFECT
from spritz.cli.jobs.submit.setters import SETTERS as OF_ALL
from spritz.model.errors import SpritzError
from spritz.notation.errors import NotationError

GOLDEN = Path(__file__).parents[2] / "golden" / "option_names.txt"

#: (command, option) whose argument differs, with the reason
DIFFERENT = {
    ("sbatch", "get-user-env"): "the timeout and mode of 25.05",
    ("sbcast", "nodelist"): "always with the nodes",
    ("srun", "external-launcher"): "refused",
    ("srun", "overlap"): "Slurm takes a word and passes over it",
    ("srun", "pty"): "no terminal that others have opened is used",
}
ARGUMENTS = {"": 0, "=": 1, "[=]": 2}


def listed() -> Iterator[tuple[str, str, int]]:
    command = ""
    for line in GOLDEN.read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if words[0].endswith(":"):
            command = words.pop(0)[:-1]
        for word in words:
            name = word.removesuffix("[=]").removesuffix("=")
            yield command, name, ARGUMENTS[word[len(name) :]]


def test_every_option_of_slurms_is_known() -> None:
    unknown, different, count = [], [], 0
    for command, name, argument in listed():
        row = next((row for row in rows(command) if row.name == name), None)
        count += 1
        if row is None:
            unknown.append((command, name))
        elif row.argument != argument and (command, name) not in DIFFERENT:
            different.append((command, name))
    assert (unknown, different) == ([], [])
    assert count > 700


def warned(**options: str) -> list[str]:
    said: list[str] = []
    values = {name.replace("_", "-"): value for name, value in options.items()}
    spec.build(values, Source(1_800_000_000.0, "/", {}, warn=said.append))
    return said


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("cpu-freq", "high"),
        ("cpu-freq", "low-high:performance"),
        ("cpu-freq", "2400000"),
        ("cpu-freq", "OnDemand"),
        ("gpu-freq", "memory=low,high"),
        ("accel-bind", "vn"),
        ("network", "x"),
        ("core-spec", "0"),
        ("thread-spec", "2"),
        ("profile", "task,energy"),
        ("send-libs", ""),
        ("bcast-exclude", "/lib"),
        ("mem-bind", "v,rank"),
        ("context", "x"),
        ("bb", "x"),
        ("power", "level"),
    ],
)
def test_what_only_other_hardware_heeds_is_taken_with_a_warning(option: str, value: str) -> None:
    (line,) = warned(**{option: value})
    assert line.startswith(f"--{option}")
    assert "has no effect: " in line


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("profile", "none"),
        ("send-libs", "no"),
        ("mem-bind", "local"),
        ("mem-bind", "v,none"),
        ("oom-kill-step", "1"),
        ("whole", ""),
    ],
)
def test_what_asks_for_nothing_is_taken(option: str, value: str) -> None:
    assert warned(**{option: value}) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("cpu-freq", "xx"),
        ("cpu-freq", "low-high-low"),
        ("cpu-freq", "low:xx"),
        ("gpu-freq", "xx"),
        ("gpu-freq", "cpu=low"),
        ("accel-bind", "z"),
        ("accel-bind", ""),
        ("profile", "foo"),
        ("send-libs", "foo"),
        ("oom-kill-step", "0"),
        ("oom-kill-step", "2"),
        ("thread-spec", "0"),
        ("core-spec", "x"),
        ("bbf", "/nonexistent"),
        ("msg-timeout", "x"),
    ],
)
def test_a_bad_value_is_refused_all_the_same(option: str, value: str) -> None:
    with pytest.raises((SpritzError, NotationError)):
        warned(**{option: value})


def test_each_checked_value_belongs_to_a_known_option() -> None:
    known = {row.name for command in ("sbatch", "salloc", "srun") for row in rows(command)}
    assert known >= {*SETTERS, *NO_EFFECT}
    assert {name for name, setter in OF_ALL.items() if setter.__qualname__.startswith("_hardware.")} == {*SETTERS}


@pytest.mark.parametrize("hint", ["nomultithread", "multithread"])
def test_a_hint_is_a_variable_of_the_job_and_its_steps(hint: str) -> None:
    """Source: Slurm 22.05."""
    context = Context("sbatch", {"A": "b"}, "/w", io.StringIO(), io.StringIO(), io.StringIO())
    listener: Any = SimpleNamespace(port=7)
    assert sbatch._environment({"hint": hint}, context)["SLURM_HINT"] == hint
    assert step_environment({"hint": hint}, context, listener)["SLURM_HINT"] == hint
    assert "SLURM_HINT" not in sbatch._environment({}, context)
