"""`spritz run -m lr=0.1,0.01 …` as a sweep, and the `-m` of a Hydra program.

A word `-m` after the program's script may be Hydra's multirun or the program's own option. It counts as Hydra's only if
the script itself imports hydra; then the combinations become trials, instead of a job that runs them one after another.
If that is unknown, the command runs unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spritz.experiments.errors import ExperimentError
from spritz.experiments.sweeps import plan as plans
from spritz.experiments.sweeps.plan import Plan

_HYDRA = re.compile(r"^\s*(?:import|from)\s+hydra\b", re.MULTILINE)
_CHOICE = re.compile(r"choice\((.*)\)\Z")
_RANGE = re.compile(r"range\((.*)\)\Z")
_FLAGS = ("-m", "--multirun")


def plan(command: Sequence[str], settings: Sequence[str], arguments: str = "flags") -> Plan:
    """The grid of NAME=A,B settings. Raises ExperimentError."""
    parameters: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name or not text:
            raise ExperimentError(
                f"-m {setting}: NAME=A,B is expected", hint="spritz run -m lr=0.1,0.01 -- python train.py", exit_code=2
            )
        if name in parameters:
            raise ExperimentError(f"-m {setting}: {name} occurs twice", exit_code=2)
        parameters[name] = values(text)
    if not command:
        raise ExperimentError("no command given", hint="spritz run -m lr=0.1,0.01 -- python train.py", exit_code=2)
    parsed = plans.parse({"command": list(command), "parameters": parameters, "arguments": arguments}, "-m")
    plans.need_reasonable(parsed, confirmed=False)
    return parsed


def values(text: str) -> list[str]:
    """The alternatives of Hydra's simple forms: a,b; choice(a,b); range(1,4). Commas in brackets do not separate."""
    if match := _CHOICE.match(text):
        return split(match[1])
    if match := _RANGE.match(text):
        try:
            bounds = [int(word) for word in match[1].split(",")]
            return [str(number) for number in range(*bounds)]
        except (ValueError, TypeError):
            raise ExperimentError(f"{text}: range(FROM, TO) of whole numbers is expected", exit_code=2) from None
    return split(text)


def split(text: str) -> list[str]:
    """The parts between commas that are outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append("")
            continue
        parts[-1] += letter
    return [part.strip() for part in parts]


def of_hydra(command: Sequence[str], directory: Path) -> tuple[Plan | None, str]:
    """(the sweep of a Hydra program's -m or None, message for the user)."""
    script = next((place for place, word in enumerate(command) if word.endswith(".py")), None)
    if script is None or not any(word in _FLAGS for word in command[script + 1 :]):
        return None, ""
    after = [word for word in command[script + 1 :] if word not in _FLAGS]
    several = [word for word in after if _is_setting(word) and len(_values_or_none(word)) > 1]
    if not several:
        return None, ""
    try:
        text = (directory / command[script]).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None, ""
    shown = " ".join(several)
    if not _HYDRA.search(text):
        return None, f"-m is {command[script]}'s own; `spritz run -m {shown} -- …` would run a sweep"
    if any("interval(" in word or "glob(" in word or "hydra/" in word for word in after):
        return None, "this Hydra multirun has a sweeper of its own: it runs as it is, in one job"
    remaining = [word for word in after if word not in several]
    sweep_plan = plan([*command[: script + 1], *remaining], several, "hydra")
    return sweep_plan, "Hydra's -m: each combination is a trial of a sweep (--no-sweep runs them in one job)"


def _is_setting(word: str) -> bool:
    return "=" in word and not word.startswith("-")


def _values_or_none(word: str) -> list[str]:
    try:
        return values(word.partition("=")[2])
    except ExperimentError:
        return []
