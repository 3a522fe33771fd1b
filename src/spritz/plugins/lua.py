"""A Lua script of the site, and the `slurm` table that it sees.

A script is loaded once, and again when its file has changed; if that fails, the previous version stays in force, as in
Slurm. Texts are bytes to Lua, so any bytes pass. Whole numbers become Lua integers.

Lua itself comes from lupa, an extra (`lua`); version 5.4, with the
`unpack` and `loadstring` of 5.1.

Source: https://slurm.schedmd.com/job_submit_plugins.html; the table as recorded from Slurm 22.05.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spritz.extras import pip_install
from spritz.notation.duration import DurationError, parse_minutes
from spritz.notation.octets import octets, plain
from spritz.plugins import lua_programs
from spritz.plugins.answer import LogLine, PluginError
from spritz.plugins.numbers import CONSTANTS, WIDE_CONSTANTS, error_numbers

#: Most memory that a script may use.
MEMORY_BYTES_MAX = 512 * 1024 * 1024


#: Written in Lua, so that errors for wrong values name the line of the script.
_PRELUDE = b"""
local log, tell, minutes, strings, numbers, live = ...
unpack, loadstring = table.unpack, load
slurm = setmetatable({}, {__index = function(_, name) return live(name) end})
for name, value in pairs(numbers) do slurm[name] = value end
for name, value in pairs(strings) do slurm[name] = value end
local function formatted(...) return string.format(...) end
function slurm.log(level, text) log(level, tostring(text)) end
slurm.error = function(text) log("error", tostring(text)) end
for _, level in ipairs({"error", "info", "verbose", "debug", "debug2", "debug3", "debug4"}) do
  slurm["log_" .. level] = function(...) log(level, formatted(...)) end
end
function slurm.user_msg(text) tell(tostring(text)) end
function slurm.log_user(...) tell(formatted(...)) end
slurm.time_str2mins = minutes
local made = {}
function made.object(read, write)
  return setmetatable({}, {
    __index = function(_, name) return read(name) end,
    __newindex = function(_, name, value)
      local problem = write(name, value)
      if problem then error(problem, 2) end
    end,
  })
end
function made.records(names, get)
  -- A table by name, whose records are made when they are looked at.
  return setmetatable({}, {
    __index = function(_, name) return get(name) end,
    __pairs = function(self)
      local place = 0
      return function()
        place = place + 1
        local name = names[place]
        if name ~= nil then return name, get(name) end
      end, self, nil
    end,
  })
end
return made
"""

_LEVELS = ("info", "verbose", "debug", "debug2", "debug3", "debug4")


def installed() -> bool:
    """Whether lupa with Lua 5.4 is installed."""
    return importlib.util.find_spec("lupa") is not None


def text_from(value: Any) -> Any:
    """A Lua value as Python's; texts come back in plain form (`notation.octets`)."""
    return plain(value.decode("utf-8", "surrogateescape")) if isinstance(value, bytes) else value


class LuaScript:
    """One script file, which must define `functions`. Its output collects in `lines` (for the user) and `log`."""

    def __init__(
        self,
        path: str,
        kind: str,
        functions: Sequence[str],
        *,
        cluster: str = "",
        live: Mapping[str, Any] | None = None,
    ) -> None:
        """`live`: names of the slurm table that are computed when read, with the function that computes each."""
        self.path = path
        self.kind = kind
        self.lines: list[str] = []
        self.log: list[LogLine] = []
        self._functions = functions
        self._cluster = cluster
        self._live: Mapping[str, Callable[[], Any]] = live or {}
        self._runtime: Any = None
        self._made: Any = None
        self._stamp: tuple[int, int] | None = None

    def load(self) -> None:
        """Read the file if it is new or has changed. Raises PluginError if there is no usable version."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            self._trouble(f"Unable to stat {self.path}: {error.strerror}")
            return
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            with open(self.path, "rb") as file:
                source = file.read()
        except OSError as error:
            self._trouble(f"{self.path}: {error.strerror}")
            return
        before = self._runtime, self._made
        try:
            self._begin(source)
        except PluginError as error:
            self._runtime, self._made = before
            self._trouble(str(error))

    def _trouble(self, what: str) -> None:
        """The file cannot be used: log it and keep the previous version, or raise if there is none."""
        if self._runtime is None:
            raise PluginError(f"{self.kind}: {what}")
        self.log.append(("error", f"{self.kind}: {what}, using previous script"))

    def _begin(self, source: bytes) -> None:
        try:
            lua = importlib.import_module("lupa.lua54")
        except ImportError as error:
            raise PluginError(f"Lua needs the package lupa: {pip_install('lua')}") from error
        runtime = lua.LuaRuntime(
            encoding=None,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            max_memory=MEMORY_BYTES_MAX,
        )
        numbers = {**CONSTANTS, **error_numbers(), **{name: float(value) for name, value in WIDE_CONSTANTS.items()}}
        self._runtime = runtime
        runtime.globals()[b"python"] = None
        runtime.execute(lua_programs.LUA, lua_programs.start, lua_programs.finish)
        self._made = runtime.execute(
            _PRELUDE,
            self._log,
            lambda text: self.lines.extend(str(text_from(text)).split("\n")),
            _minutes,
            runtime.table_from({b"CLUSTER_NAME": octets(self._cluster)}),
            runtime.table_from({name.encode(): number for name, number in numbers.items()}),
            self._live_value,
        )
        try:
            runtime.execute(source, name=b"@" + os.fsencode(os.path.basename(self.path)), mode=b"t")
        except Exception as error:
            raise PluginError(self._words(error)) from error
        missing = [name for name in self._functions if runtime.globals()[name.encode()] is None]
        if missing:
            raise PluginError(f"{self.path}: missing required function {', '.join(missing)}")

    def _live_value(self, name: Any) -> Any:
        make = self._live.get(text_from(name))
        return None if make is None else make()

    def _log(self, level: Any, text: Any) -> None:
        word = text_from(level)
        if not isinstance(word, str):
            word = _LEVELS[min(max(int(word or 0), 0), len(_LEVELS) - 1)]
        self.log.append((word, str(text_from(text))))

    def call(self, function: str, *arguments: Any) -> int:
        """Call a function; return its result, or 0 if that is not a number. Raises PluginError if the script fails."""
        try:
            result = self._runtime.globals()[function.encode()](*arguments)
        except Exception as error:
            raise PluginError(f"{self.kind}: {self._words(error)}") from error
        value = result[0] if isinstance(result, tuple) and result else result
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.log.append(("info", f"{self.kind}: {self.path}: non-numeric return code"))
            return 0
        return int(value)

    def _words(self, error: Exception) -> str:
        """First line of a Lua error: file, line and reason."""
        complaint = error.args[0] if error.args else type(error).__name__
        return str(text_from(complaint)).split("\nstack traceback:")[0].removeprefix("error loading code: ")

    # -- values for Lua

    def object(self, read: Callable[[str], Any], write: Callable[[str, Any], None] | None = None) -> Any:
        """A table whose fields `read` and `write` implement. `write` raises an Exception to refuse a value."""

        def written(name: Any, value: Any) -> bytes | None:
            if write is None:
                return b"this record cannot be changed"
            try:
                write(str(text_from(name)), text_from(value))
            except Exception as error:
                return octets(str(error))
            return None

        return self._made[b"object"](lambda name: self.value(read(str(text_from(name)))), written)

    def records(self, names: Sequence[str], make: Callable[[str], Any]) -> Any:
        """A table of records by name. `make(name)` returns one record's `read`, or None; it is called once per name."""
        objects: dict[str, Any] = {}

        def get(name: Any) -> Any:
            word = str(text_from(name))
            if word not in objects:
                read = make(word)
                objects[word] = None if read is None else self.object(read)
            return objects[word]

        return self._made[b"records"](self._runtime.table_from([octets(name) for name in names]), get)

    def table(self, values: Sequence[str], first: int = 1) -> Any:
        """A list; `first` is the index of its first value."""
        return self._runtime.table_from({place: octets(value) for place, value in enumerate(values, first)})

    def value(self, value: Any) -> Any:
        """A Python value as Lua's; lists count from 0, as in Slurm."""
        if isinstance(value, str):
            return octets(value)
        if isinstance(value, list):
            return self.table(value, 0)
        if isinstance(value, dict):
            return self._runtime.table_from({place: self.value(item) for place, item in value.items()})
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return float(value)
        return value


def _minutes(text: Any) -> int:
    try:
        return parse_minutes(str(text_from(text)))
    except DurationError:
        return -2  # return -2  # NO_VAL as a signed C integer
