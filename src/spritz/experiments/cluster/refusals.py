"""Hints after sbatch has refused a script: existing names, and the resources of nodes."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess

from spritz.experiments.errors import ExperimentError
from spritz.notation.names import nearest

#: Messages of sbatch (of Spritz and of 22.05) -> the option that they concern.
_ABOUT = (
    (re.compile(r"partition", re.IGNORECASE), "partition"),
    (re.compile(r"invalid account", re.IGNORECASE), "account"),
    (re.compile(r"invalid qos", re.IGNORECASE), "qos"),
    (
        re.compile(
            r"node configuration|invalid (feature|generic resource|gres)|node count|memory specification"
            r"|more processors",
            re.IGNORECASE,
        ),
        "nodes",
    ),
)
_SHOWN_MAX = 6


#: Runs a command of Slurm; raises ExperimentError if it does not answer (`slurm.call`).
Call = Callable[[Sequence[str]], CompletedProcess[str]]


def hint(message: str, script: str, call: Call) -> str:
    """A hint for the user; "" if there is none, or if Slurm does not answer."""
    options = _asked(script)
    about = next((name for pattern, name in _ABOUT if pattern.search(message)), "")
    if "account/partition" in message.lower():
        about = "account"
    if about == "partition":
        return _names("partitions", _lines(call, "sinfo", "-h", "-o", "%R"), options.get("partition", ""))
    if about in ("account", "qos"):
        words = ("sacctmgr", "-nP", "show", "assoc", f"user={getpass.getuser()}", f"format={about}")
        names = [name for line in _lines(call, *words) for name in line.split(",") if name]
        return _names("your accounts" if about == "account" else "QOS that you may use", names, options.get(about, ""))
    return nodes(options.get("partition", ""), call) if about else ""


def _asked(script: str) -> dict[str, str]:
    """Options in the script's directives."""
    try:
        text = Path(script).read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(re.findall(r'^#SBATCH --([a-z-]+)="?([^"\n]*)', text, re.MULTILINE))


def _lines(call: Call, *words: str) -> list[str]:
    try:
        done = call(words)
    except ExperimentError:
        return []
    return list(dict.fromkeys(line for line in done.stdout.splitlines() if line)) if done.returncode == 0 else []


def _names(what: str, names: list[str], typed: str) -> str:
    if not names:
        return ""
    near = nearest(typed, names) if typed else ""
    listed = ", ".join(sorted(dict.fromkeys(names)))
    return f"{what}: {listed}" + (f" (did you mean {near}?)" if near else "")


def nodes(partition: str, call: Call) -> str:
    """Resources of nodes, equal ones in one line: in the requested partitions, else in the default one."""
    partitions = set(partition.split(",")) if partition else set()
    lines = []
    for line in _lines(call, "sinfo", "-h", "-o", "%P|%D|%c|%m|%G|%f"):
        name, count, cpus, memory, gres, features = line.split("|", 5)
        if name.rstrip("*") in partitions or (not partitions and name.endswith("*")):
            parts = [f"{cpus} CPUs", f"{_memory(memory)} of memory"]
            parts += [re.sub(r"\(S:[^)]*\)", "", gres)] if gres not in ("(null)", "") else ["no GPUs"]
            parts += [f"features {features}"] if features not in ("(null)", "") else []
            lines.append(f"partition {name.rstrip('*')} has {count} nodes with {', '.join(parts)}")
    if len(lines) > _SHOWN_MAX:
        lines = [*lines[:_SHOWN_MAX], "… (`sinfo -o '%P %D %c %m %G %f'` shows all)"]
    return "\n".join(lines)


def _memory(mib: str) -> str:
    number = float(mib.rstrip("+") or 0)
    return (f"{number / 1024:.4g} GiB" if number >= 1024 else f"{number:.0f} MiB") + ("+" if mib.endswith("+") else "")
