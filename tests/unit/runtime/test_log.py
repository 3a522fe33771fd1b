"""Log lines can be read by people and taken apart by programs, at Slurm's levels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import syslog
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.runtime import log


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    log.configure("", stderr_level="info")


def test_a_line_has_a_stamp_the_event_and_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "slurmctld.log"
    log.configure("slurmctld", path=path, file_level="debug2", stderr_level="quiet")
    logger = log.get_logger("slurmctld").bind(request=9)
    logger.info("job.started", job_id=7, nodes="n[1-2]", wait_seconds=0.25)
    logger.error("job.failed", reason="no space left", name='a"b\nc')
    logger.debug2("x.y")
    logger.debug3("not.shown")
    lines = path.read_text().splitlines()
    stamp = r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\] "
    assert re.fullmatch(stamp + re.escape("job.started request=9 job_id=7 nodes=n[1-2] wait_seconds=0.25"), lines[0])
    assert lines[1].endswith("""] error: job.failed request=9 reason='no space left' name='a"b\\nc'""")
    assert lines[2].endswith("] debug2: x.y request=9")
    assert len(lines) == 3


def test_standard_error_names_the_program(capfd: pytest.CaptureFixture[str]) -> None:
    log.configure("slurmd", stderr_level="error")
    log.get_logger("slurmd").error("node.lost", node="n1")
    log.get_logger("slurmd").info("not.shown")
    assert capfd.readouterr().err == "slurmd: error: node.lost node=n1\n"


def test_an_exception_is_shown_with_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    log.configure("slurmd")
    try:
        raise ValueError("wrong")
    except ValueError as error:
        log.get_logger("slurmd").error("request.failed", exception=error)
    written = capfd.readouterr().err
    assert "Traceback" in written
    assert written.rstrip().endswith("ValueError: wrong")


def test_after_rotation_reopen_writes_to_a_new_file(tmp_path: Path) -> None:
    """slurmctld(8): SIGUSR2 re-opens the log, after logrotate has moved it."""
    path = tmp_path / "d.log"
    log.configure("d", path=path, stderr_level="quiet")
    log.get_logger("d").info("a.one")
    path.rename(tmp_path / "d.log.1")
    log.get_logger("d").info("a.two")
    log.reopen()
    log.get_logger("d").info("a.three")
    assert "a.two" in (tmp_path / "d.log.1").read_text()
    assert "a.three" in path.read_text()
    assert "a.two" not in path.read_text()


def test_levels_have_slurms_names_and_numbers() -> None:
    assert [log.level_number(name) for name in ("quiet", "FATAL", "Info", "debug5", "3", 9)] == [0, 1, 3, 9, 3, 9]
    for wrong in ("loud", "10", -1):
        with pytest.raises(ValueError, match="unknown debug level"):
            log.level_number(wrong)


def test_levels_can_be_changed_while_running(capfd: pytest.CaptureFixture[str]) -> None:
    log.configure("d", stderr_level="info")
    logger = log.get_logger("d")
    assert not logger.enabled("debug")
    log.set_levels(stderr_level="debug")
    assert logger.enabled("debug")
    logger.debug("a.b")
    assert capfd.readouterr().err == "d: debug:  a.b\n"


def test_a_file_that_cannot_be_opened_leaves_the_old_one_in_force(tmp_path: Path) -> None:
    path = tmp_path / "d.log"
    log.configure("d", path=path, stderr_level="quiet")
    with pytest.raises(FileNotFoundError):
        log.configure("d", path=tmp_path / "missing/d.log")
    log.get_logger("d").info("still.here")
    assert "still.here" in path.read_text()


def test_a_full_disk_does_not_stop_the_daemon() -> None:
    log.configure("d", path="/dev/full", stderr_level="quiet")
    log.get_logger("d").info("nobody.reads")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("iso8601", "2026-01-31T12:00:00"),
        ("iso8601_ms", "2026-01-31T12:00:00.250"),
        ("rfc5424", "2026-01-31T12:00:00-03:30"),
        ("rfc5424_ms", "2026-01-31T12:00:00.250-03:30"),
        ("short", "Jan 31 12:00:00"),
    ],
)
def test_times_in_the_log_have_the_form_of_log_time_format(
    form: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurm.conf(5) LogTimeFormat."""
    monkeypatch.setenv("TZ", "XYZ+3:30")
    time.tzset()
    try:
        assert log.time_stamp(form, 1769873400.25) == text
        assert log.time_stamp("thread_id", 1769873400.25).startswith("Sat Jan 31 12:00:00.250000 ")
        assert log.time_stamp("clock", 0.0).isdigit()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_log_file_follows_log_time_format(tmp_path: Path) -> None:
    log.configure("d", path=tmp_path / "log", stderr_level="quiet")
    try:
        log.set_time_format("short")
        log.get_logger("d").info("a.b")
    finally:
        log.set_time_format("iso8601_ms")
        log.configure("d")
    assert re.fullmatch(r"\[[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d\] a\.b\n", (tmp_path / "log").read_text())


def test_syslog_gets_what_is_asked_for_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """slurm.conf(5) SlurmctldSyslogDebug; nothing goes there unless it is set."""
    sent: list[tuple[int, str]] = []
    monkeypatch.setattr(syslog, "syslog", lambda priority, line: sent.append((priority, line)))
    try:
        log.configure("d", stderr_level="quiet")
        log.get_logger("d").error("a.b")
        assert sent == []
        log.configure("d", stderr_level="quiet", syslog_level="debug")
        log.get_logger("d").error("a.b", exception=ValueError("x"))
        log.get_logger("d").debug("c.d", e=1)
        log.get_logger("d").debug2("f.g")
    finally:
        log.configure("d")
    assert sent[0] == (syslog.LOG_ERR, "error: a.b")
    assert sent[-1] == (syslog.LOG_DEBUG, "debug:  c.d e=1")
    assert all("\n" not in line for _, line in sent)


def test_in_the_background_lines_keep_their_order_and_are_all_there_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "d.log"
    log.configure("d", path=path, stderr_level="quiet")
    with log.in_background():
        for number in range(1000):
            log.get_logger("d").info("a.b", n=number)
    assert [line.rpartition("n=")[2] for line in path.read_text().splitlines()] == [str(n) for n in range(1000)]
    log.get_logger("d").info("after.it")
    assert "after.it" in path.read_text()


class Pipe:
    """A log that is not read until `drain`: a write to it blocks when it is full, as one to a stuck disk does."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "log"
        os.mkfifo(self.path)
        self._end = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.text = b""

    def drain(self, until: bytes) -> None:
        os.set_blocking(self._end, True)
        while until not in self.text:
            self.text += os.read(self._end, 65536)

    def close(self) -> None:
        os.close(self._end)


def test_a_log_that_is_not_taken_holds_nothing_up_and_what_was_dropped_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "FLUSH_SECONDS", 100.0)
    pipe = Pipe(tmp_path)
    log.configure("d", path=pipe.path, stderr_level="quiet")
    logger = log.get_logger("d")
    with log.in_background():
        for number in range(2 * log.LINES_MAX):
            logger.info("a.b", n=number, padding="x" * 100)
        # A fatal line waits for its turn, as long as it must.
        fatal = threading.Thread(target=lambda: logger.fatal("daemon.failed"))
        pipe.drain(b"n=0 ")
        fatal.start()
        pipe.drain(b"fatal: daemon.failed")
        fatal.join()
    # More than one such line, where the thread gets going only when lines have been dropped.
    dropped = [int(lines) for lines in re.findall(rb"error: log.dropped lines=(\d+)", pipe.text)]
    assert dropped
    assert pipe.text.count(b" a.b n=") + sum(dropped) == 2 * log.LINES_MAX
    log.configure("")
    pipe.close()


def test_lines_before_a_rotation_are_in_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "d.log"
    log.configure("d", path=path, stderr_level="quiet")
    with log.in_background():
        for number in range(500):
            log.get_logger("d").info("a.b", n=number)
        path.rename(tmp_path / "d.log.1")
        log.reopen()
        log.get_logger("d").info("c.d")
    assert (tmp_path / "d.log.1").read_text().count("a.b") == 500
    assert [line.split()[1] for line in path.read_text().splitlines()] == ["log.reopened", "c.d"]


def test_a_file_that_cannot_be_opened_again_is_told_in_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "d.log"
    path.parent.mkdir()
    log.configure("d", path=path, stderr_level="quiet")
    path.parent.rename(tmp_path / "moved")
    log.reopen()
    assert "error: log.reopen_failed" in (tmp_path / "moved" / "d.log").read_text()


def test_a_forked_child_writes_by_itself() -> None:
    program = """
import os
from spritz.runtime import log
log.configure("d")
with log.in_background():
    if os.fork() == 0:
        log.get_logger("d").info("of.child")
        os._exit(0)
    os.wait()
    log.get_logger("d").info("of.parent")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "d: of.child\nd: of.parent\n")
