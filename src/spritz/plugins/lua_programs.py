"""`io.popen` and `os.execute` for Lua scripts, as Slurm's Lua has them: lupa's is built for plain C, without the first.

Lua opens the program's pipe itself, so the script has a file of Lua's with all its methods; only `close` is replaced:
it waits for the program and says how it ended. Programs stay in the process group of the script, so they end with it if
it takes too long (`controller.plugins.host`).

Source: the Lua 5.4 reference manual, io.popen, file:close and os.execute.
"""

from __future__ import annotations

import subprocess
from typing import Any

from spritz.notation.octets import octets

#: Called with `start` and `finish`.
LUA = b"""
local start, finish = ...
local programs = setmetatable({}, {__mode = "k"})
local methods = getmetatable(io.stdout).__index
local close, execute = methods.close, os.execute
function io.popen(command, mode)
  mode = mode or "r"
  if mode ~= "r" and mode ~= "w" then error("bad argument #2 to 'popen' (invalid mode)", 2) end
  if type(command) ~= "string" then error("bad argument #1 to 'popen' (string expected)", 2) end
  local program, path, number = start(command, mode == "r")
  if not program then return nil, path, number end
  local file, problem, code = io.open(path, mode)
  finish(program, not file)
  if not file then return nil, problem, code end
  programs[file] = program
  return file
end
function methods.close(file)
  local program = programs[file]
  if not program then return close(file) end
  programs[file] = nil
  close(file)
  return finish(program, true)
end
function io.close(file)
  return methods.close(file or io.output())
end
function os.execute(command)
  if command == nil then return execute() end
  local done, how, status = execute(command)
  if how ~= "exit" then return done, how, status end
  if status & 127 ~= 0 then return nil, "signal", status & 127 end
  return done, how, status >> 8
end
"""


class _Program(subprocess.Popen[bytes]):
    """A shell that runs a command. A script may drop it without waiting."""

    def __del__(self) -> None:
        if self.returncode is None and self.poll() is None:
            _dropped.append(self)


#: programs to wait for, since their scripts did not
_dropped: list[_Program] = []


def start(command: bytes, reads: bool) -> tuple[Any, ...]:
    """Start a program: itself, and the path of the script's end of its pipe. If it cannot start: None, why, and the
    error number.
    """
    _dropped[:] = [program for program in _dropped if program.poll() is None]
    pipes: dict[str, int] = {"stdout" if reads else "stdin": subprocess.PIPE}
    try:
        program = _Program(("/bin/sh", "-c", command), **pipes)  # type: ignore[call-overload]  # the two names above
    except OSError as error:
        return None, command + b": " + octets(error.strerror or str(error)), error.errno
    except ValueError as error:
        return None, octets(str(error)), 0
    pipe = program.stdout if reads else program.stdin
    return program, b"/proc/self/fd/%d" % pipe.fileno()


def finish(program: _Program, waits: bool) -> tuple[Any, ...]:
    """Close Python's copy of the script's end. With `waits`, also wait for the program, and return what file:close
    does.
    """
    for pipe in (program.stdin, program.stdout):
        if pipe is not None:
            pipe.close()
    if not waits:
        return ()
    status = program.wait()
    return (True if status == 0 else None), b"exit" if status >= 0 else b"signal", abs(status)
