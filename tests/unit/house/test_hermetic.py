"""Test runs end, and say what they leave behind: runs of pytest with tests that hang or leave something."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests import watchdog
from tests.hermetic import ROOT

_CONFTEST = """\
from tests import hermetic

hermetic._GRACE_SECONDS = 0.5
hermetic._PATIENCE_SECONDS = 0.5


def pytest_configure(config):
    hermetic.configure(config)
"""
#: starts a daemon in a session of its own, which takes a second to tell its number
_DAEMON = """\
import subprocess
import sys

def daemon(path):
    command = ["sh", "-c", 'echo $$ >"$1.new"; mv "$1.new" "$1"; exec sleep 600', "sh", path]
    subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
#: as in an uninterruptible wait: pytest-timeout's signal does not end it
_HANG = """\
import signal
import threading
import time
from started import daemon

def test_that_hangs():
    daemon({path!r})
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(600)

def test_afterwards():
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose tests run under the watchdog."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout_method = signal\naddopts = -p no:cacheprovider\n")
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "started.py").write_text(_DAEMON)
    return tmp_path


def start(project: Path, test: str, *options: str, **env: str) -> subprocess.Popen[str]:
    """Run this test file."""
    (project / "test_it.py").write_text(test)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, "test_it.py"],
        cwd=project,
        env={**kept, "PYTHONPATH": f"{ROOT}:{project}", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(path: Path) -> bool:
    """Whether the daemon that wrote its number here has ended; it has begun before."""
    return int(path.read_text()) not in watchdog.processes(str(path))


@pytest.mark.slow
def test_a_test_that_takes_no_signal_is_ended_with_its_daemons(project: Path) -> None:
    daemon = project / "daemon"
    process = start(project, _HANG.format(path=str(daemon)), "--timeout=1", "-n1")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "watchdog: test_it.py::test_that_hangs has exceeded its limit" in output
    assert "sleep 600" in output
    assert "1 failed, 1 passed" in output, "the tests after it run"
    assert ended(daemon)


@pytest.mark.slow
def test_a_run_that_exceeds_its_limit_is_ended_with_its_daemons(project: Path) -> None:
    daemon = project / "daemon"
    process = start(project, _HANG.format(path=str(daemon)), SPRITZ_TEST_SECONDS="5")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == -9
    assert "watchdog: the run has exceeded its 5 seconds, in test_it.py::test_that_hangs" in output
    assert ended(daemon)


@pytest.mark.slow
def test_daemons_of_a_killed_run_are_ended(project: Path) -> None:
    daemon = project / "daemon"
    process = start(project, _HANG.format(path=str(daemon)))
    while not daemon.exists():
        time.sleep(0.05)
    process.kill()
    output, _ = process.communicate(timeout=200)
    assert "watchdog: pytest has ended before its time" in output
    assert ended(daemon)


def test_what_a_run_leaves_is_named_ended_and_makes_it_fail(project: Path) -> None:
    daemon = project / "daemon"
    test = f"from started import daemon\n\ndef test_that_leaves_something():\n    daemon({str(daemon)!r})\n"
    process = start(project, test)
    output, _ = process.communicate(timeout=200)
    assert "1 passed, 1 error" in output
    assert process.returncode == 1
    assert "of test_it.py::test_that_leaves_something (call): sleep 600" in output
    assert "What the tests wrote stays in " in output


@pytest.mark.slow
def test_a_run_that_leaves_nothing_removes_its_directory(project: Path) -> None:
    test = """\
import os

def test_that_leaves_nothing(tmp_path):
    print("directory", os.environ["TMPDIR"])
    (tmp_path / "file").touch()
"""
    process = start(project, test, "-s")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    directory = output.partition("directory ")[2].split()[0]
    assert not Path(directory).exists()
