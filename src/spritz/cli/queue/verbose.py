"""What `squeue -v` says first: its options. Source: what 22.05 prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.queue.jobs import START_FORMAT

if TYPE_CHECKING:
    from collections.abc import Mapping


def text(given: Mapping[str, str], times: int) -> str:
    """All of it. `times`: how often -v was said."""

    def word(truth: object) -> str:
        return "true" if truth else "false"

    def value(name: str, default: str = "(null)") -> str:
        return given.get(name) or default

    start = "start" in given
    rule = "-" * 29
    rows = (
        ("all         = ", word("all" in given or "partition" in given)),
        ("array       = ", word("array" in given)),
        ("federation  = ", "false"),
        ("format      = ", value("format", START_FORMAT if start else "(null)")),
        ("iterate     = ", value("iterate", "0")),
        ("job_flag    = ", str(int("jobs" in given))),
        ("jobs        = ", value("jobs")),
        ("licenses    = ", value("licenses")),
        ("local       = ", word("local" in given)),
        ("names       = ", value("name")),
        ("nodes       = ", value("nodelist", "")),
        ("partitions  = ", value("partition")),
        ("priority    = ", word("priority" in given)),
        ("reservation = ", value("reservation")),
        ("sibling      = ", "false"),
        ("sort        = ", value("sort", "S" if start else "(null)")),
        ("start_flag  = ", str(int(start))),
        ("states      = ", value("states", "PD" if start else "(null)")),
        ("step_flag   = ", str(int("steps" in given))),
        ("steps       = ", value("steps")),
        ("users       = ", value("user")),
        ("verbose     = ", str(times)),
    )
    return "\n".join([rule, *(title + shown for title, shown in rows), rule]) + "\n\n\n"
