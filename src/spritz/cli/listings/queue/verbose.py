"""The options that `squeue -v` prints first. Source: output of 22.05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.listings.queue.jobs import START_FORMAT

if TYPE_CHECKING:
    from collections.abc import Mapping


def text(options: Mapping[str, str], times: int) -> str:
    """The whole text. `times`: number of -v options."""

    def word(truth: object) -> str:
        return "true" if truth else "false"

    def value(name: str, default: str = "(null)") -> str:
        return options.get(name) or default

    start = "start" in options
    rule = "-" * 29
    rows = (
        ("all         = ", word("all" in options or "partition" in options)),
        ("array       = ", word("array" in options)),
        ("federation  = ", "false"),
        ("format      = ", value("format", START_FORMAT if start else "(null)")),
        ("iterate     = ", value("iterate", "0")),
        ("job_flag    = ", str(int("jobs" in options))),
        ("jobs        = ", value("jobs")),
        ("licenses    = ", value("licenses")),
        ("local       = ", word("local" in options)),
        ("names       = ", value("name")),
        ("nodes       = ", value("nodelist", "")),
        ("partitions  = ", value("partition")),
        ("priority    = ", word("priority" in options)),
        ("reservation = ", value("reservation")),
        ("sibling      = ", "false"),
        ("sort        = ", value("sort", "S" if start else "(null)")),
        ("start_flag  = ", str(int(start))),
        ("states      = ", value("states", "PD" if start else "(null)")),
        ("step_flag   = ", str(int("steps" in options))),
        ("steps       = ", value("steps")),
        ("users       = ", value("user")),
        ("verbose     = ", str(times)),
    )
    return "\n".join([rule, *(title + shown for title, shown in rows), rule]) + "\n\n\n"
