"""The output of -v: the options as the command understood them.

Source: recorded output of Slurm 22.05 (`sbatch -v`, `srun -v`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.jobs.submit.refusals import Source
from spritz.model.errors import SpritzError
from spritz.notation import duration, memory, times
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from spritz.cli.call.context import Context
    from spritz.cli.jobs.submit.values import Values

_RULE = "-------------------- --------------------"


def show(options: Values, context: Context) -> None:
    """Print a line for each option, sorted by name. A flag shows as `set`, a repeated option as its count.

    Raises SpritzError if --quiet is given too.
    """
    if "quiet" in options:
        raise SpritzError("don't specify both --verbose (-v) and --quiet (-Q)")
    context.info("defined options")
    context.info(_RULE)
    for name in sorted(options.keys() - {"het-group"}):
        context.info(f"{name:<20}: {_shown(name, options[name])}")
    context.info(_RULE)
    context.info("end of defined options")


def _shown(name: str, value: str) -> str:
    if name == "verbose":
        return str(len(value))
    if name == "immediate":
        return value or "1"
    if name == "no-kill" and value == "off":
        return "unset"
    try:
        if name in ("time", "time-min"):
            return duration.format_minutes(duration.parse_minutes(value))
        if name in ("mem", "mem-per-cpu"):
            mib = memory.parse_mib(value)
            return str(mib) if not mib or mib % 1024 else memory.format_mib(mib)
        if name in ("begin", "deadline"):
            return times.format_time(times.parse_time(value, Source().now))
    except NotationError:
        return value  # a bad value: the code that uses it refuses it
    if name == "exclusive":
        return value or name
    least, dash, most = value.partition("-")
    if name == "nodes" and dash and least == most:
        return least
    return value or "set"
