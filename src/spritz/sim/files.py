"""Checks before a simulation runs that its output files can be written."""

from __future__ import annotations

import os
from errno import EACCES, EISDIR, ENOENT
from importlib.util import find_spec

from spritz.extras import pip_install
from spritz.sim.trace.workload import TraceError

#: formats of `--plot`, by the extension of the file name
FORMATS = ("png", "pdf", "svg")


def check_writable(path: str) -> None:
    """Raises TraceError if the path cannot be written."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.path.isdir(folder):
        raise TraceError(f"{path}: {os.strerror(EISDIR if os.path.isdir(path) else ENOENT)}")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise TraceError(f"{path}: {os.strerror(EACCES)}")


def check_drawable(path: str) -> None:
    """Raises TraceError if no picture can be written there."""
    if find_spec("matplotlib") is None:
        raise TraceError("--plot needs matplotlib", pip_install("plot"))
    if path.rpartition(".")[2].lower() not in FORMATS:
        raise TraceError(f"{path}: --plot writes {', '.join(FORMATS)}, as the file's name ends")
    check_writable(path)
