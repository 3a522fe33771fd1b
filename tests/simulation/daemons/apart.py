"""Runs a function in a process of its own: a simulation replaces names that are never put back."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_ROOT = Path(__file__).parents[3]

#: Seconds of real time that a simulation may take.
_SECONDS = 200.0


class Failed(AssertionError):
    """The function has raised; the text is its traceback."""


def apart(function: Callable[..., T], *args: object) -> T:
    """The result of `function(*args)` in a fresh interpreter with a fixed hash seed. Both must be picklable, and the
    function is of a module. Raises Failed with the traceback.
    """
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.daemons.apart"],
        input=pickle.dumps((function.__module__, function.__qualname__, args)),
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env=environment,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise Failed(f"the process ended with {done.returncode}")
    succeeded, result = pickle.loads(done.stdout)
    if not succeeded:
        raise Failed(result)
    answer: T = result
    return answer


def _main() -> None:
    module, name, args = pickle.load(sys.stdin.buffer)
    out = os.dup(1)
    os.dup2(2, 1)  # what is printed is for people
    try:
        answer = True, getattr(importlib.import_module(module), name)(*args)
    except BaseException:
        answer = False, traceback.format_exc()
    with os.fdopen(out, "wb") as file:
        file.write(pickle.dumps(answer))
    os._exit(0)  # threads of the simulation wait for ever


if __name__ == "__main__":
    _main()
