"""Translate #PBS and #BSUB lines of a batch script into options of sbatch; refuse options that have no equivalent.

As in Slurm, #SBATCH lines override them. Source: sbatch(1) --ignore-pbs; qsub(1B) and bsub(1) for their options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Option of PBS or LSF -> (option of sbatch, whether it takes a value).
_PBS = {
    "A": ("account", True),
    "N": ("job-name", True),
    "e": ("error", True),
    "o": ("output", True),
    "q": ("partition", True),
    "M": ("mail-user", True),
    "J": ("array", True),
    "t": ("array", True),
    "a": ("begin", True),
    "v": ("export", True),
    "p": ("nice", True),
    "h": ("hold", False),
    "V": ("", False),
    "j": ("", True),
}
_BSUB = {
    "J": ("job-name", True),
    "P": ("account", True),
    "e": ("error", True),
    "o": ("output", True),
    "i": ("input", True),
    "m": ("nodelist", True),
    "n": ("ntasks", True),
    "q": ("partition", True),
    "u": ("mail-user", True),
    "w": ("dependency", True),
    "b": ("begin", True),
    "W": ("time", True),
    "H": ("hold", False),
    "x": ("exclusive", False),
    "cwd": ("chdir", True),
}
_PBS_LIMITS = {
    "walltime": "time",
    "nodes": "nodes",
    "select": "nodes",
    "ncpus": "mincpus",
    "ppn": "ntasks-per-node",
    "mem": "mem",
    "pmem": "mem-per-cpu",
    "vmem": "mem",
    "file": "tmp",
    "gpus": "gpus-per-node",
    "ngpus": "gpus-per-node",
}
_PBS_EVENTS = {"b": "BEGIN", "e": "END", "a": "FAIL", "n": "NONE"}


def pbs_options(lines: Iterable[list[str]]) -> list[tuple[str, str]]:
    """(option of sbatch, value) in order. Raises SpritzError for an option without equivalent."""
    options: list[tuple[str, str]] = []
    for words in lines:
        for letter, value in _split(words, _PBS | {"l": ("", True), "m": ("", True), "r": ("", True)}, "PBS"):
            if letter == "l":
                options += _limits(value)
            elif letter == "m":
                options.append(("mail-type", ",".join(_PBS_EVENTS.get(event, event) for event in value)))
            elif letter == "r":
                options.append(("requeue" if value == "y" else "no-requeue", ""))
            elif _PBS[letter][0]:
                options.append((_PBS[letter][0], value))
    return options


def bsub_options(lines: Iterable[list[str]]) -> list[tuple[str, str]]:
    """(option of sbatch, value) in order. Raises SpritzError for an option without equivalent."""
    return [(_BSUB[letter][0], value) for words in lines for letter, value in _split(words, _BSUB, "BSUB")]


def _split(words: list[str], known: dict[str, tuple[str, bool]], what: str) -> list[tuple[str, str]]:
    options = []
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        name = word[1:]
        if word[:1] != "-" or not name:
            raise SpritzError(f"Invalid directive found in batch script: {word[:80]}", exit_code=255)
        value = ""
        if name not in known:
            name, value = name[0], name[1:]
        if name not in known:
            raise SpritzError(f"option {word[:80]} of #{what} is not supported by Spritz", code="ESLURM_NOT_SUPPORTED")
        if known[name][1] and not value:
            if not remaining:
                raise SpritzError(f"#{what}: option requires an argument -- '{name}'", exit_code=255)
            value = remaining.pop(0)
        options.append((name, value))
    return options


def _limits(text: str) -> list[tuple[str, str]]:
    """Options for the value of `#PBS -l`: `nodes=2:ppn=4,walltime=1:00:00`, `select=2:ncpus=4:mem=8gb`."""
    return [option for item in text.split(",") for option in _limit_items(item)]


def _limit_items(item: str) -> list[tuple[str, str]]:
    name, _, value = item.partition("=")
    if name == "walltime":
        return [("time", value)]
    first, *more = value.replace("+", ":").split(":") if name == "nodes" else value.split(":")
    parts = [f"{name}={first}", *more] if more else [item]
    options = []
    for part in parts:
        key, _, amount = part.partition("=")
        if key not in _PBS_LIMITS:
            raise SpritzError(f"#PBS -l {key[:40]} is not supported by Spritz", code="ESLURM_NOT_SUPPORTED")
        size = amount.rstrip("bB") if key in ("mem", "pmem", "vmem", "file") else amount
        options.append((_PBS_LIMITS[key], size))
    return options
