"""Runs functions each in a process of its own: a simulation replaces names that are never put back.

The processes are forked from one that has imported what they need, with a fixed hash seed.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

T = TypeVar("T")

_ROOT = Path(__file__).parents[3]

#: Seconds of real time that a simulation may take.
_SECONDS = 200.0

_LENGTH = struct.Struct("!Q")

_parent: subprocess.Popen[bytes] | None = None


class Failed(AssertionError):
    """The function has raised; the text is its traceback."""


def apart(function: Callable[..., T], *args: object) -> T:
    """The result of `function(*args)` in a process of its own. Both must be picklable, and the function is of a module.

    Raises Failed with the traceback.
    """
    parent = _started()
    assert parent.stdin is not None, "a pipe"
    assert parent.stdout is not None, "a pipe"
    _write(parent.stdin, pickle.dumps((function.__module__, function.__qualname__, args)))
    succeeded, result = pickle.loads(_read(parent.stdout))
    if not succeeded:
        raise Failed(result)
    answer: T = result
    return answer


def _started() -> subprocess.Popen[bytes]:
    global _parent
    if _parent is None or _parent.poll() is not None:
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT / 'testing/src'}:{_ROOT}",
        }
        command = [sys.executable, "-m", "tests.simulation.daemons.apart"]
        _parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT, env=environment)
    return _parent


def end() -> None:
    """End the process that the others were forked from, if it runs."""
    global _parent
    parent, _parent = _parent, None
    if parent is not None:
        with parent:  # closes its input, and waits
            pass


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def _read(file: IO[bytes]) -> bytes:
    head = file.read(_LENGTH.size)
    return file.read(_LENGTH.unpack(head)[0]) if head else b""


# In the parent of the simulations


def _main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is for people
    requests = os.fdopen(os.dup(0), "rb")
    while request := _read(requests):
        _write(out, _run(request))


def _run(request: bytes) -> bytes:
    """The pickled answer of a child."""
    module, name, args = pickle.loads(request)
    importlib.import_module(module)
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ours)
        _child(module, name, args, theirs)
    os.close(theirs)
    answer = bytearray()
    while select.select([ours], [], [], _SECONDS)[0]:
        piece = os.read(ours, 1 << 20)
        if not piece:
            break
        answer += piece
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(ours)
    status = os.waitpid(pid, 0)[1]
    return bytes(answer) or pickle.dumps((False, f"the process has ended with status {status}"))


def _child(module: str, name: str, args: tuple[Any, ...], out: int) -> None:
    try:
        answer = True, getattr(sys.modules[module], name)(*args)
    except BaseException:
        answer = False, traceback.format_exc()
    with os.fdopen(out, "wb") as file:
        file.write(pickle.dumps(answer))
    os._exit(0)  # threads of the simulation wait for ever


if __name__ == "__main__":
    _main()
