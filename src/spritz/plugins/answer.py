"""The result of a plugin's call, and the errors of plugins.

Source: https://slurm.schedmd.com/job_submit_plugins.html.
"""

from __future__ import annotations

from msgspec import Struct

#: one line of the log: level (a name) and text
LogLine = tuple[str, str]


class PluginAnswer(Struct, frozen=True, gc=False):
    """A plugin's answer: `number` is 0, -1 or a Slurm error number; `lines` go to the user, `log` to the controller's
    log.
    """

    number: int = 0
    lines: tuple[str, ...] = ()
    log: tuple[LogLine, ...] = ()


class PluginError(Exception):
    """A plugin cannot be used, or failed. The message is one line that names it."""


class FieldError(Exception):
    """The description has no field of this name, or the field does not accept the value."""
