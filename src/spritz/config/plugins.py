"""JobSubmitPlugins and CliFilterPlugins: the names that exist, and what they need.

Source: slurm.conf(5).
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from spritz.extras import pip_install
from spritz.notation.errors import shown
from spritz.notation.names import nearest

if TYPE_CHECKING:
    from spritz.config.diagnostics import Diagnostics
    from spritz.config.settings import Settings

#: with or without their kind: `job_submit/lua` is `lua`
JOB_SUBMIT: tuple[str, ...] = (
    "all_partitions",
    "defaults",
    "logging",
    "lua",
    "partition",
    "pbs",
    "python",
    "require_timelimit",
    "throttle",
)
CLI_FILTER = ("lua", "syslog", "user_defaults")

_KINDS = {"JobSubmitPlugins": ("job_submit/", JOB_SUBMIT), "CliFilterPlugins": ("cli_filter/", CLI_FILTER)}


def plugins_of(settings: Settings, key: str) -> tuple[str, ...]:
    """Names without their kind, in the order of the file."""
    return tuple(word.removeprefix(_KINDS[key][0]) for word in settings.words(key))


def check_plugins(settings: Settings, diagnostics: Diagnostics) -> None:
    """Add an error for unknown names, and for Lua if it is not installed."""
    for key, (kind, known_names) in _KINDS.items():
        names = plugins_of(settings, key)
        place = settings.places.get(key)
        for name in names:
            if name not in known_names:
                near = nearest(name, known_names)
                hint = f"did you mean {near}?" if near else f"one of {', '.join(known_names)}"
                diagnostics.error(place, f"{key}: there is no plugin {kind}{shown(name)}", key=key, hint=hint)
        if "lua" in names and importlib.util.find_spec("lupa") is None:
            message = f"{key}: {kind}lua needs the package lupa, which is not installed"
            diagnostics.error(place, message, key=key, hint=pip_install("lua"))
