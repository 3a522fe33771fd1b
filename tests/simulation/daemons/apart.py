"""Simulations in processes of their own: the seam is never undone, and their threads never end."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def apart(work: Callable[[], T]) -> T:
    """What `work` returns, from a forked process. Raises AssertionError with its traceback."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            told = pickle.dumps((work(), ""))
        except BaseException:
            told = pickle.dumps((None, traceback.format_exc()))
        with os.fdopen(writing, "wb") as file:
            file.write(told)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    assert answer, "the simulation's process died"
    result, problem = pickle.loads(answer)
    assert not problem, problem
    return result  # type: ignore[no-any-return]
