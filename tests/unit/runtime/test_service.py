"""A daemon that ends with an error says why: to the command that starts it, and to its log."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from spritz.model.errors import SpritzError
from spritz.runtime import log
from spritz.runtime.daemon.daemon_command import run_daemon
from spritz.runtime.daemon.daemon_options import Common
from spritz.runtime.daemon.service import serve_detached

def serve(startup):
    log.configure("slurmdbd", path=sys.argv[1], stderr_level="error")
    if sys.argv[2] == "served":
        startup.serves()
    raise SpritzError("the database is of a later release", hint="start its slurmdbd")

def options(argv):
    return Common(foreground="-D" in argv)

sys.exit(run_daemon("slurmdbd", sys.argv[3:], options, "", lambda given: serve_detached("slurmdbd", given, serve)))
"""
PRINTED = "slurmdbd: fatal: the database is of a later release\nslurmdbd: start its slurmdbd\n"
LOGGED = "fatal: daemon.failed error='the database is of a later release' hint='start its slurmdbd'\n"


def daemon(log: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(log), *arguments], capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("arguments", [("refused",), ("refused", "-D"), ("served", "-D")])
def test_an_error_is_printed_with_its_hint_and_logged(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = daemon(tmp_path / "log", *arguments)
    assert (done.returncode, done.stderr) == (1, PRINTED)
    assert (tmp_path / "log").read_text().partition("] ")[2] == LOGGED


def test_a_daemon_that_fails_after_its_start_leaves_the_reason_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = daemon(log, "served")
    assert (done.returncode, done.stderr) == (0, "")
    deadline = time.monotonic() + 100
    while not log.exists() or log.read_text().partition("] ")[2] != LOGGED:
        assert time.monotonic() < deadline, "the log lacks the reason"
        time.sleep(0.01)
