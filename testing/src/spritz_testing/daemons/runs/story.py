"""The story of a run, in the format of the transcripts: what was done, each with what followed, for a person to read.

    $ 12.500 user1 submit tag=a1 nodes=2
      = 12.504 done job=1
      > 13.020 n1 began 1.batch life 0
    $ 20.000 fault: kill, ctl1/slurmctld[101]
      | 23.100 ctl1/slurmctld[130] daemon.started …
    ! 40.000 rule: text

`$` something was asked or injected, `=` its answer, `>` an effect on a node, `|` a line of a log, `!` a violation.
Times are seconds after the beginning.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz.model.ids import step_name
from spritz_testing.daemons.history import Began, Booted, Ended, Injected, Left, Operation, Signalled
from spritz_testing.daemons.system.world import EPOCH

if TYPE_CHECKING:
    from spritz_testing.daemons.history import Entry, History

#: Lines of daemons' logs that are told: those of so many seconds before the first violation, and so many at most.
_LOG_SECONDS = 60.0
_LOG_LINES = 40

#: How lines of daemons begin: "ctl1/slurmctld[101] ". Those of users' commands are in the history.
_DAEMON = re.compile(r"\S+/slurm(ctld|d|dbd)\[\d+\] ")


def tell(history: History, log: list[str], violations: list[tuple[str, float, str]]) -> list[str]:
    """`log`: lines that begin with seconds after the beginning."""
    lines = [line for entry in history.entries for line in _entry(entry)]
    if violations:
        lines += _near(log, violations[0][1])
    lines.sort(key=lambda line: line[0])
    return [*(text for _, text in lines), *(f"! {at:.3f} {rule}: {text.strip()}" for rule, at, text in violations)]


def _near(log: list[str], at: float) -> list[tuple[float, str]]:
    near = []
    for line in log:
        time, _, text = line.strip().partition(" ")
        if at - _LOG_SECONDS <= float(time) <= at and _DAEMON.match(text):
            near.append((EPOCH + float(time), f"  | {float(time):.3f} {text}"))
    return near[-_LOG_LINES:]


def _entry(entry: Entry) -> list[tuple[float, str]]:
    """The lines of an entry, each with its place in time: an answer follows its question."""
    if isinstance(entry, Operation):
        return _operation(entry)
    if isinstance(entry, Injected):
        text = f"fault: {entry.kind}, {entry.target}"
        if entry.until > entry.at:
            text += f", for {entry.until - entry.at:.3f} s"
        return [_line("$", entry.at, text)]
    if isinstance(entry, Booted):
        return [_line("  >", entry.at, f"{entry.node} lost power: all its processes are gone")]
    if isinstance(entry, Left):
        return [_line("  -", entry.at, f"a client of {entry.client} is gone")]
    if isinstance(entry, Began | Ended | Signalled):
        return [_line("  >", entry.at, f"{entry.node} {_step(entry)}")]
    return []  # readings, and orders that nodes accepted: too many to read, and of use to the checks only


def _operation(entry: Operation) -> list[tuple[float, str]]:
    job = f" job={entry.job_id}" if entry.job_id and entry.wanted is None else ""
    asked = _line("$", entry.called_at, f"{entry.client} {entry.kind}{job}{_values(entry.wanted)}")
    if entry.answered_at is None:
        return [asked, (entry.called_at, "  = no answer")]
    job = f" job={entry.job_id}" if entry.job_id else ""
    code = f" {entry.answer}" if isinstance(entry.answer, str) else ""
    at = entry.answered_at - EPOCH
    return [asked, (entry.called_at, f"  = {at:.3f} {entry.outcome.value}{job}{code}")]


def _step(entry: Began | Ended | Signalled) -> str:
    step = f"{entry.job_id}.{step_name(entry.step_id)} life {entry.restart_count}"
    if isinstance(entry, Began):
        return f"began {step} cpus={','.join(map(str, sorted(entry.step_cpus)))}"
    if isinstance(entry, Signalled):
        return f"signalled {step} {entry.number}"
    unknown = " lost" if entry.lost else " untold" if entry.untold else ""
    return f"ended {step} exit={entry.exit_code}:{entry.signal}{unknown}"


def _line(sign: str, at: float, text: str) -> tuple[float, str]:
    return at, f"{sign} {at - EPOCH:.3f} {text}"


def _values(wanted: Any) -> str:
    """What differs from the record's defaults, as `name=value`."""
    if wanted is None:
        return ""
    if not isinstance(wanted, Struct):
        return f" {wanted}"
    words = []
    for name, default in zip(wanted.__struct_fields__, _defaults(wanted), strict=True):
        value = getattr(wanted, name)
        if value != default and value not in (None, "", (), {}):
            words.append(f"{name}={value.value if isinstance(value, Enum) else value!r}")
    return "".join(f" {word}" for word in words)


def _defaults(wanted: Struct) -> tuple[Any, ...]:
    fields, defaults = wanted.__struct_fields__, wanted.__struct_defaults__
    return (None,) * (len(fields) - len(defaults)) + defaults
