"""The filters of one call: they supply defaults, check options before submission, and get the job id after it.

Source: https://slurm.schedmd.com/cli_filter_plugins.html; texts as Slurm 22.05 has them.
"""

from __future__ import annotations

import json
import os
import syslog
from collections.abc import Callable, Sequence
from typing import Any

from spritz.cli.call.context import Context
from spritz.cli.call.options import NONE, Row
from spritz.cli.jobs.filters import defaults
from spritz.cli.jobs.submit import values
from spritz.cli.jobs.submit.values import Values
from spritz.client.locate import find_slurm_conf, locate_controller, read_keys
from spritz.model.errors import SpritzError
from spritz.notation.errors import shown
from spritz.notation.octets import plain
from spritz.plugins.answer import FieldError, PluginError
from spritz.plugins.lua_filter import LuaFilter, json_env

#: no step: the second number that is printed after a submission
NO_STEP = 0xFFFFFFFE

_FAILED = "cli_filter plugin terminated with error"
_KNOWN = ("lua", "syslog", "user_defaults")


class Filters:
    """In the order of slurm.conf. Raises SpritzError for one that cannot be used."""

    def __init__(self, names: Sequence[str], command: str, rows: Sequence[Row], context: Context) -> None:
        unknown = [name for name in names if name not in _KNOWN]
        if unknown:
            raise SpritzError(f"cannot create cli_filter context for {shown(unknown[0])}")
        self._names = names
        self._command = command
        self._context = context
        self._rows = {row.name: row for row in rows if row.name}
        self._cluster = locate_controller().cluster_name
        self._lua: LuaFilter | None = None
        #: syslog: the options of each component
        self._noted: dict[int, str] = {}
        if "lua" in names:
            self._lua = LuaFilter(_script_path(), self._cluster, context.environ)
            self._asked(LuaFilter.load)

    # -- the moments

    def defaults(self) -> Values:
        """Options below all others. Raises SpritzError."""
        values: Values = {}
        for name in self._names:
            if name == "lua":
                self._check(self._asked(LuaFilter.defaults, self._reader(values, ()), self._writer(values)))
            elif name == "user_defaults":
                self._user_defaults(values)
        return values

    def before(self, options: Values, argv: Sequence[str], offset: int = 0) -> Values:
        """The options after the filters. Raises SpritzError, which ends the command."""
        changed = dict(options)
        for name in self._names:
            if name == "lua":
                read, write = self._reader(changed, argv), self._writer(changed)
                self._check(self._asked(LuaFilter.before, read, write, lambda: self._plain(changed, argv), offset))
            elif name == "syslog":
                self._noted[offset] = _json(self._plain(changed, argv))
        return changed

    def after(self, job_id: int, step_id: int = NO_STEP, offset: int = 0) -> None:
        """The job is queued, or the step made: nothing of this undoes it."""
        for name in self._names:
            if name == "lua":
                try:
                    self._asked(LuaFilter.after, offset, job_id, step_id)
                except SpritzError as error:
                    self._context.error(error.message)
            elif name == "syslog":
                self._log(job_id, step_id, offset)

    # -- parts

    def _asked(self, moment: Callable[..., Any], *arguments: Any) -> Any:
        """The script's return value; its messages are printed. Raises SpritzError."""
        lua = self._lua
        assert lua is not None, "it is there"
        try:
            return moment(lua, *arguments)
        except PluginError as error:
            raise SpritzError(_FAILED, details=(str(error),)) from error
        finally:
            for level, text in lua.said:
                if level == "error":
                    self._context.error(f"lua: {text}")
                elif level == "info":
                    self._context.info(f"lua: {text}")
                elif level == "user":
                    self._context.info(text)

    def _check(self, number: int) -> None:
        if number:
            raise SpritzError(_FAILED)

    def _row(self, name: str) -> Row:
        row = self._rows.get(name.replace("_", "-"))
        if row is None:
            raise FieldError(f"{self._command} has no option --{shown(name)}")
        if row.refused:
            raise FieldError(f"option --{row.name} is not supported by Spritz: {row.refused}")
        return row

    def _reader(self, options: Values, argv: Sequence[str]) -> Callable[[str], Any]:
        def read(name: str) -> Any:
            if name == "argv":
                # Lua counts from 1 here, as in Slurm.
                return dict(enumerate(argv, 1))
            if name in ("spank", "spank_job_env"):
                return {}
            if name == "type":
                return self._command
            row = self._rows.get(name.replace("_", "-"))
            if row is None or row.key not in options:
                return None
            # --exclusive without a value reads as in Slurm.
            return options[row.key] or ("exclusive" if row.key == "exclusive" else "set")

        return read

    def _writer(self, options: Values) -> Callable[[str, Any], None]:
        def write(name: str, value: Any) -> None:
            row = self._row(name)
            if value is None:
                options.pop(row.key, None)
                return
            text = str(value)
            values.put(options, row.key, "" if row.argument == NONE and text == "set" else text)

        return write

    def _plain(self, options: Values, argv: Sequence[str]) -> dict[str, Any]:
        values: dict[str, Any] = {name: plain(value) or "set" for name, value in options.items()}
        return {**values, "argv": [plain(word) for word in argv]}

    def _user_defaults(self, values: Values) -> None:
        try:
            with open(defaults.path_of_user(), encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except OSError:
            return  # most users have none
        write = self._writer(values)
        for option, value, complaint in defaults.read(text, self._command, self._cluster):
            if complaint:
                self._context.error(complaint)
                continue
            try:
                write(option, value)
            except FieldError as error:
                # One file serves the three commands: what this one does not have is for another.
                if option.replace("_", "-") in self._rows:
                    raise SpritzError(f"~/.slurm/defaults: {error}") from error

    def _log(self, job_id: int, step_id: int, offset: int) -> None:
        options = self._noted.get(offset, "{}")
        environment = json_env(self._context.environ)
        text = f'{{ "jobid":{job_id},"stepid":{step_id},"options":{options},"env":{environment}}}'
        syslog.openlog("slurm/cli_filter/syslog", syslog.LOG_PID, syslog.LOG_USER)
        try:
            syslog.syslog(syslog.LOG_NOTICE, f"post_submit: {text}".encode("utf-8", "replace").decode())
        finally:
            syslog.closelog()


def _json(options: dict[str, Any]) -> str:
    return json.dumps(options, separators=(",", ":"), ensure_ascii=False)


def _script_path() -> str:
    """cli_filter.lua: that of CliFilterParameters, else the file next to slurm.conf."""
    conf = find_slurm_conf()
    parameters = read_keys(frozenset(("clifilterparameters",)), conf).get("clifilterparameters", "")
    for word in parameters.split(","):
        name, _, path = word.strip().partition("=")
        if name.lower() == "cli_filter_lua_path" and path:
            return path
    return os.path.join(os.path.dirname(os.path.abspath(conf)), "cli_filter.lua")
