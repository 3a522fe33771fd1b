"""oci.conf: how a runtime runs the containers of --container. Pure.

Source: oci.conf(5).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.config.grammar import Location, Malformed, tokens
from spritz.config.schema import oci_keys
from spritz.config.typed import Fields, malformed
from spritz.notation.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.config.diagnostics import Diagnostics
    from spritz.config.grammar import Line

FILE = "oci.conf"

#: letters that may follow % in a pattern
_REPLACED = frozenset("%@bejmnprstuU")
_COMMANDS = ("RunTimeCreate", "RunTimeDelete", "RunTimeKill", "RunTimeQuery", "RunTimeRun", "RunTimeStart")
_PATTERNS = (*_COMMANDS, "ContainerPath", "MountSpoolDir")
_EXPRESSIONS = ("EnvExclude", "RunTimeEnvExclude")


class OciFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of oci.conf: patterns of sh(1) commands, and other settings. Without the file --container has no effect."""

    create: str = ""
    start: str = ""
    run: str = ""
    query: str = ""
    kill: str = ""
    delete: str = ""
    container_path: str = ""
    mount_spool_dir: str = ""
    #: "null", "newline" or ""
    env_file: str = ""
    disabled_hooks: tuple[str, ...] = ()
    env_exclude: str = ""
    runtime_env_exclude: str = ""
    ignore_config: bool = False
    keep_files: bool = False


def read(lines: Iterable[Line], path: str, diagnostics: Diagnostics) -> OciFile:
    """Parse the file. Never raises for its content."""
    fields = Fields(FILE, oci_keys(), diagnostics)
    for line in lines:
        for token in tokens(line):
            if isinstance(token, Malformed):
                malformed(token, diagnostics)
            else:
                fields.add(token)
    _check(fields, Location(path, 0), diagnostics)
    values = fields.values
    text = {key: str(values.get(key) or "") for key in (*_PATTERNS, *_EXPRESSIONS)}
    hooks = values.get("DisableHooks") or ()
    env_file = str(values.get("CreateEnvFile") or "disabled")
    return OciFile(
        create=text["RunTimeCreate"],
        start=text["RunTimeStart"],
        run=text["RunTimeRun"],
        query=text["RunTimeQuery"],
        kill=text["RunTimeKill"],
        delete=text["RunTimeDelete"],
        container_path=text["ContainerPath"],
        mount_spool_dir=text["MountSpoolDir"],
        env_file="" if env_file == "disabled" else env_file,
        disabled_hooks=tuple(map(str, hooks)) if isinstance(hooks, tuple) else (),
        env_exclude=text["EnvExclude"],
        runtime_env_exclude=text["RunTimeEnvExclude"],
        ignore_config=bool(values.get("IgnoreFileConfigJson")),
        keep_files=bool(values.get("DisableCleanup")),
    )


def _check(fields: Fields, place: Location, diagnostics: Diagnostics) -> None:
    values, places = fields.values, fields.places
    for key in _PATTERNS:
        pattern = str(values.get(key) or "")
        unknown = next((letter for letter in re.findall("%(.?)", pattern) if letter not in _REPLACED), None)
        if unknown is not None:
            diagnostics.error(places[key], f"{key}={shown(pattern)}: unknown pattern %{unknown}", key=key)
    for key in _EXPRESSIONS:
        try:
            re.compile(str(values.get(key) or ""))
        except re.error as error:
            diagnostics.error(places[key], f"{key}={shown(str(values[key]))}: {error}", key=key)
    present = {key for key in _COMMANDS if values.get(key)}
    if not present:
        diagnostics.error(
            place, "missing required options: RunTimeRun, RunTimeKill and RunTimeDelete", key="RunTimeRun"
        )
        return
    required = {"RunTimeRun", "RunTimeKill", "RunTimeDelete"}
    other = {"RunTimeCreate", "RunTimeStart", "RunTimeKill", "RunTimeDelete", "RunTimeQuery"}
    if present - {"RunTimeQuery"} != required and present != other:
        message = "RunTimeRun and RunTimeCreate/RunTimeStart are mutually exclusive. "
        message += "All other RunTime* configurations items must be populated."
        diagnostics.error(place, message, key="RunTimeRun")
    elif values.get("IgnoreFileConfigJson") and "RunTimeStart" in present:
        message = "IgnoreFileConfigJson=true and RunTimeStart are mutually exclusive"
        diagnostics.error(places["RunTimeStart"], message, key="RunTimeStart")
