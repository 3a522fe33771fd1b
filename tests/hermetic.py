"""Test runs that end, and leave nothing behind: the side of pytest. `tests/watchdog.py` is the side outside of it.
See docs/decisions/0159.

- The run has one temporary directory. It is removed at the end, or stays if a test failed, and is named then.
- The watchdog ends a test that has exceeded its limit for half a minute (pytest-timeout gets the first chance, and
  tells more), and ends the run after SPRITZ_TEST_SECONDS (an hour by default).
- A run fails if, at its end, processes, mounts, cgroups or users of its tests are left, or new files in the working
  tree. (Names in the abstract namespace of sockets end with the processes that hold them.)
"""

from __future__ import annotations

import contextlib
import math
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests import watchdog

ROOT = Path(__file__).parents[1]
#: after a test's limit, for pytest-timeout and what the test does at its end
_GRACE_SECONDS = 30.0
#: for processes that are ending when the last test is over
_PATIENCE_SECONDS = 10.0


class Limited:
    """Tells the watchdog which test this process runs."""

    def __init__(self, directory: Path) -> None:
        self._limits = watchdog.Limits(directory)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._limits.begin(item.nodeid, math.inf)
        try:
            return (yield)
        finally:
            self._limits.end()

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        """Only called for tests that have a limit."""
        self._limits.begin(item.nodeid, settings.timeout + _GRACE_SECONDS)

    def pytest_enter_pdb(self) -> None:
        self._limits.end()


class Run:
    """The process that the run was started as: makes the directory, starts the watchdog, looks for what is left."""

    def __init__(self, config: pytest.Config) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="spritz-")).resolve()
        self.directory.chmod(0o1777)  # as /tmp: other users' processes are among those that the tests start
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.directory)
        if not config.option.basetemp:
            config.option.basetemp = str(self.directory / "t")  # sockets' paths must be short
        self._files = _untracked()
        self._failed = False
        self._watchdog = _outside_of_capture(config, self.directory)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None]:
        """Look for what is left when the workers have ended."""
        yield
        left = self._end()
        self._failed = bool(left) or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if left:
            self._report(session, "Left behind:\n" + "\n".join(left))

    def _report(self, session: pytest.Session, text: str) -> None:
        """Fail the run; the closing line counts an error."""
        where = ("tests", None, "the run")
        report = pytest.TestReport("tests", where, {}, outcome="failed", longrepr=text, when="teardown")
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.stats.setdefault("error", []).append(report)
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _end(self) -> list[str]:
        shutil.rmtree(self.directory / "runtime", ignore_errors=True)  # a command server without its socket ends
        ours = (str(self.directory),)
        not_left = (os.getpid(), self._watchdog.pid)
        for pid, text in watchdog.processes(*ours, without=not_left).items():
            if "spritz-command --serve " in text:  # it would end by itself, when it next looks for its socket
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (found := watchdog.processes(*ours, without=not_left)) and time.monotonic() < deadline:
            time.sleep(0.1)
        watchdog.kill(*ours, without=not_left)
        points = watchdog.mounts(self.directory)
        watchdog.unmount(self.directory)
        pids = watchdog.Limits(self.directory).pids()
        return [
            *found.values(),
            *(f"mount {point}" for point in points),
            *(f"cgroup {path}" for path in _cgroups(pids)),
            *(f"user {name}" for name in _users(pids)),
            *(f"file {path} in the working tree" for path in sorted(_untracked() - self._files)),
        ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._failed:
            terminalreporter.line(f"What the tests wrote stays in {self.directory}.")

    def pytest_unconfigure(self) -> None:
        self._watchdog.kill()
        self._watchdog.wait()
        if not self._failed:
            shutil.rmtree(self.directory, ignore_errors=True)


def _outside_of_capture(config: pytest.Config, directory: Path) -> subprocess.Popen[bytes]:
    """The watchdog, which writes to the terminal (or CI's log) and not to what pytest captures."""
    seconds = os.environ.get("SPRITZ_TEST_SECONDS", "3600")
    command = [sys.executable, "-m", "tests.watchdog", str(directory), str(os.getpid()), seconds]
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True)


def _untracked() -> set[str]:
    """Files in the working tree that git neither tracks nor ignores; none where this is no checkout of ours."""
    command = ["git", "-C", str(ROOT), "ls-files", "--others", "--exclude-standard"]
    try:
        return set(subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.splitlines())
    except OSError:
        return set()


def _cgroups(pids: set[int]) -> list[Path]:
    """Cgroups that tests have made themselves: their names end with the number of the test's process.

    Those of other programs come and go meanwhile, which os.walk bears and Path.rglob does not.
    """
    found = (Path(place, name) for place, names, _ in os.walk("/sys/fs/cgroup") for name in names)
    return [path for path in found if path.name.startswith("spritz_test_") and int(path.name[12:]) in pids]


def _users(pids: set[int]) -> list[str]:
    """Users that tests have made (tests/e2e/people.py)."""
    made = (re.match(r"spz(\d+)", entry.pw_name) for entry in pwd.getpwall())
    return [found.string for found in made if found and int(found[1]) in pids]


def configure(config: pytest.Config) -> Path:
    """Called once in each pytest process; returns the run's directory."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Run(config))
    directory = Path(os.environ["TMPDIR"])
    config.pluginmanager.register(Limited(directory))
    return directory
