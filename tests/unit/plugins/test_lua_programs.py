"""io.popen and os.execute in a site's Lua script: lines of Lua 5.4 built for POSIX, as Slurm's is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spritz.plugins import lua_programs
from spritz.plugins.lua import LuaScript


def said(tmp_path: Path, body: str) -> list[str]:
    path = tmp_path / "script.lua"
    shown = "local function show(...) slurm.log_user('%s', table.concat({...}, ' ')) end\n"
    path.write_text(f"{shown}function run()\n{body}\nreturn 0\nend\n")
    script = LuaScript(str(path), "test", ("run",))
    script.load()
    script.call("run")
    return script.lines


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("local f = io.popen('echo ok'); show(f:read('*l'), io.type(f)); f:close()", "ok file"),
        ("local f = io.popen('echo 7 x; echo b', 'r'); show(f:read('n', 'l', 'L', 'a'))", "7  x b\n "),
        ("local f = io.popen('echo a; echo b'); show(f:read('*a'))", "a\nb\n"),
        ("for line in io.popen('seq 3'):lines() do show(line) end", "1"),
        ("local f = io.popen('true'); show(tostring(f:read('l')), tostring(f:close()))", "nil true"),
        ("local a, b, c = io.popen('exit 3'):close(); show(tostring(a), b, c)", "nil exit 3"),
        ("local a, b, c = io.close(io.popen('kill $$')); show(tostring(a), b, c)", "nil signal 15"),
        ("local f = io.popen('false'); f:close(); show(tostring(pcall(f.read, f)))", "false"),
        ("show(select(2, pcall(io.popen, 'true', 'rw')))", "bad argument #2 to 'popen' (invalid mode)"),
        ("show(select('#', io.open('/dev/null'):close()))", "1"),
        ("local a, b, c = os.execute('exit 3'); show(tostring(a), b, c)", "nil exit 3"),
        ("local a, b, c = os.execute('kill $$'); show(tostring(a), b, c)", "nil signal 15"),
        ("local a, b, c = os.execute('true'); show(tostring(a), b, c)", "true exit 0"),
        ("show(tostring(os.execute()))", "true"),
    ],
)
def test_programs_are_read_and_told_how_they_ended(tmp_path: Path, body: str, line: str) -> None:
    assert "\n".join(said(tmp_path, body)).split("\n")[: line.count("\n") + 1] == line.split("\n")


def test_a_program_reads_what_the_script_writes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    body = f"local f = io.popen('cat > {out}; exit 2', 'w'); f:write('a', 1, '\\255\\n'); show(select(3, f:close()))"
    assert said(tmp_path, body) == ["2"]
    assert out.read_bytes() == b"a1\xff\n"


def test_programs_that_the_script_drops_are_waited_for_later(tmp_path: Path) -> None:
    said(tmp_path, "for i = 1, 40 do io.popen('true') end collectgarbage() collectgarbage()")
    waiting = list(lua_programs._dropped)
    for program in waiting:
        program.wait()
    said(tmp_path, "io.popen('true'):close()")
    assert not [program for program in waiting if program in lua_programs._dropped]


def test_a_program_that_cannot_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_arguments: object, **_words: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(lua_programs, "_Program", short)
    body = "local f, why, number = io.popen('echo'); show(tostring(f), why, number)"
    assert said(tmp_path, body) == ["nil echo: Resource temporarily unavailable 11"]


def test_programs_of_the_scripts_process_can_be_ended() -> None:
    """Signals that it passes over are not ignored in what it starts, and do not end a read."""
    code = (
        "import os, signal, sys\nfrom spritz.controller.plugins import child\n"
        "child.Serving.run = lambda self: None\n"
        "import socket\na, b = socket.socketpair()\n"
        "sys.argv[1:] = [str(a.detach()), str(os.getppid())]\nchild.main()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(os.waitstatus_to_exitcode(os.system('kill $$')))\n"
    )
    result = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True, timeout=60)
    assert int(result.stdout) == -signal.SIGTERM
