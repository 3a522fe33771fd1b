"""What a plugin answers, and how it fails.

Source: https://slurm.schedmd.com/job_submit_plugins.html.
"""

from __future__ import annotations

from msgspec import Struct

#: one line of the log: its level, a name and what was said
LogLine = tuple[str, str]


class Answer(Struct, frozen=True, gc=False):
    """`number`: 0, -1 or an error number of Slurm's. `lines` are for the user, `log` for the controller's log."""

    number: int = 0
    lines: tuple[str, ...] = ()
    log: tuple[LogLine, ...] = ()


class PluginError(Exception):
    """A plugin that cannot be used, or failed: one line that names it."""


class FieldError(Exception):
    """A name that the description does not have, or a value that it does not take."""
