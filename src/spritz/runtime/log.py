"""Logging: events with fields, to a file, to standard error and to syslog, at Slurm's levels.

    log = get_logger("slurmctld")
    log.info("job.started", job_id=7, nodes="n[1-2]", wait_seconds=0.2)

writes `[2026-01-31T12:00:00.123] job.started job_id=7 nodes=n[1-2] wait_seconds=0.2`. Names are `noun.verb` and stable.
Not the standard library's logging: it would slow the start of commands, and has neither these levels nor fields.

While a daemon serves (`in_background`), a thread writes the lines: a stuck disk, terminal or journald must not block
the loop. At most `LINES_MAX` lines wait; more are dropped, and their number is logged. A fatal line, and the end of the
block, wait until everything is written, for `FLUSH_SECONDS` at most. Callers must never log secrets, scripts or
environments.

Sources: slurm.conf(5) SlurmctldDebug, SlurmctldLogFile, SlurmctldSyslogDebug, LogTimeFormat; slurmctld(8) SIGUSR2.
Differs: nothing goes to syslog unless it is asked for.
"""

from __future__ import annotations

import os
import sys
import syslog
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spritz.runtime.worker import Worker

#: lines queued for the writing thread
LINES_MAX = 10_000

#: Seconds that the end of a daemon waits for its last lines.
FLUSH_SECONDS = 5.0

#: Slurm's levels in order; a sink at level `info` accepts `quiet` to `info`.
LEVELS = (
    "quiet",
    "fatal",
    "error",
    "info",
    "verbose",
    "debug",
    "debug2",
    "debug3",
    "debug4",
    "debug5",
)
_QUIET, _FATAL, _ERROR, _INFO, _VERBOSE, _DEBUG = range(6)
_PREFIX = {_FATAL: "fatal: ", _ERROR: "error: ", _DEBUG: "debug:  "}

#: syslog priorities of the levels up to info; higher levels are debug
_PRIORITY = {_FATAL: syslog.LOG_CRIT, _ERROR: syslog.LOG_ERR, _INFO: syslog.LOG_INFO, _VERBOSE: syslog.LOG_INFO}

#: Characters that require quoting, so that a line can be parsed.
_QUOTED = frozenset(" \"'=\t\n\r\\")


def level_raised(configured: str, verbose: int) -> int:
    """The configured level ("" is info), one higher for each -v. Source: slurmctld(8), slurmd(8) -v."""
    return min(len(LEVELS) - 1, level_number(configured or "info") + verbose)


def level_number(name: str | int) -> int:
    """Index of a level in `LEVELS`, from its name in any case or its number. Raises ValueError for others."""
    text = str(name).lower()
    if text.isdecimal() and int(text) < len(LEVELS):
        return int(text)
    if text not in LEVELS:
        raise ValueError(f"unknown debug level {name!r}; one of {', '.join(LEVELS)} or 0 to {len(LEVELS) - 1}")
    return LEVELS.index(text)


def _field(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if not text or not text.isprintable() or not _QUOTED.isdisjoint(text):
        return repr(text)
    return text


def format_event(event: str, fields: dict[str, Any]) -> str:
    """`event key=value …` on one line, whatever the values contain."""
    return " ".join([event, *(f"{key}={_field(value)}" for key, value in fields.items())])


def time_stamp(form: str, now: float) -> str:
    """`now` (epoch seconds) in a form of LogTimeFormat; local time. An unknown form counts as `iso8601_ms`."""
    local = time.localtime(now)
    milliseconds = f".{int(now * 1000) % 1000:03d}"
    if form == "clock":
        return str(time.process_time_ns() // 1000)
    if form == "short":
        return time.strftime("%b %d %T", local)
    if form == "thread_id":
        micro = f".{int(now * 1_000_000) % 1_000_000:06d}"
        return f"{time.strftime('%a %b %d %T', local)}{micro} {os.getpid()} {threading.get_native_id()}"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", local)
    if form != "iso8601" and form != "rfc5424":
        stamp += milliseconds
    if form.startswith("rfc"):
        offset = local.tm_gmtoff // 60
        stamp += f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
    return stamp


class _Sinks:
    """Where a process's lines go. One per process, shared by all loggers."""

    def __init__(self) -> None:
        self.program = ""
        self.file_level = _QUIET
        self.stderr_level = _INFO
        self.syslog_level = _QUIET
        self.path: str | None = None
        self.descriptor: int | None = None
        self.level_max = _INFO
        self.time_format = "iso8601_ms"
        #: writes the lines; None: the caller of `log` writes them
        self.worker: Worker | None = None

    def open_file(self) -> None:
        if self.path is None:
            return
        opened = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        if self.descriptor is None:
            self.descriptor = opened
        else:
            os.dup2(opened, self.descriptor, inheritable=False)
            os.close(opened)

    def close_file(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor = None
        self.path = None

    def write(self, level: int, text: str) -> None:
        now = time.time()
        if self.worker is None:
            self._emit(level, text, now)
        else:
            units = 0 if level == _FATAL else 1  # a fatal line is never dropped
            self.worker.put(partial(self._emit_and_tell, self.worker, level, text, now), units)

    def do(self, work: Callable[[], None]) -> None:
        """Run `work` on the sinks, after all earlier lines."""
        if self.worker is None:
            work()
        else:
            self.worker.put(work)

    def flush(self, seconds: float) -> None:
        if self.worker is not None:
            self.worker.flush(seconds)

    def _emit_and_tell(self, worker: Worker, level: int, text: str, now: float) -> None:
        self._emit(level, text, now)
        if worker.dropped:
            lines, worker.dropped = worker.dropped, 0
            self._emit(_ERROR, f"log.dropped lines={lines}", now)

    def _emit(self, level: int, text: str, now: float) -> None:
        prefix = _PREFIX.get(level) or (f"{LEVELS[level]}: " if level > _DEBUG else "")
        if self.descriptor is not None and level <= self.file_level:
            stamp = time_stamp(self.time_format, now)
            self._write_all(self.descriptor, f"[{stamp}] {prefix}{text}\n")
        if level <= self.stderr_level:
            program = f"{self.program}: " if self.program else ""
            self._write_all(2, f"{program}{prefix}{text}\n")
        if level <= self.syslog_level:
            for line in f"{prefix}{text}".splitlines():
                syslog.syslog(_PRIORITY.get(level, syslog.LOG_DEBUG), line)

    @staticmethod
    def _write_all(descriptor: int, line: str) -> None:
        try:
            os.write(descriptor, line.encode("utf-8", "backslashreplace"))
        except OSError:
            # A full disk or a closed terminal must not stop the daemon, and there is no other place to report it.
            pass


_sinks = _Sinks()


def _write_directly() -> None:
    _sinks.worker = None


# A forked child has a copy of its parent's queue, but not the thread that empties it.
os.register_at_fork(after_in_child=_write_directly)


@contextmanager
def in_background() -> Iterator[None]:
    """While the block runs, a thread writes the lines of this process. Enter it after `daemonize`."""
    from spritz.runtime.worker import Worker  # commands log too, and must not import asyncio

    worker = _sinks.worker = Worker("log", waiting_max=LINES_MAX)
    try:
        yield
    finally:
        _sinks.worker = None
        worker.flush(FLUSH_SECONDS)
        worker.close()


def flush(seconds: float = FLUSH_SECONDS) -> None:
    """Wait until all lines so far are written."""
    _sinks.flush(seconds)


def descriptor() -> int:
    """Descriptor of the log file, or of standard error without one: for emergency output."""
    return 2 if _sinks.descriptor is None else _sinks.descriptor


def configure(
    program: str,
    *,
    path: str | os.PathLike[str] | None = None,
    file_level: str | int = "info",
    stderr_level: str | int = "info",
    syslog_level: str | int = "quiet",
) -> None:
    """Set the sinks of this process: `path` (appended), standard error and syslog, each up to a level.

    Raises OSError if the file cannot be opened and ValueError for an unknown level; then nothing has changed.
    """
    levels = level_number(file_level), level_number(stderr_level), level_number(syslog_level)
    fresh = _Sinks()
    if path is not None:
        fresh.path = os.fspath(path)
        fresh.open_file()
    _sinks.close_file()
    _sinks.program = program
    _sinks.path, _sinks.descriptor = fresh.path, fresh.descriptor
    syslog.openlog(program, syslog.LOG_PID, syslog.LOG_DAEMON)
    set_levels(file_level=levels[0], stderr_level=levels[1], syslog_level=levels[2])


def set_levels(
    *,
    file_level: str | int | None = None,
    stderr_level: str | int | None = None,
    syslog_level: str | int | None = None,
) -> None:
    """Change the sinks' levels, as `scontrol setdebug` does. Raises ValueError for an unknown level."""
    if file_level is not None:
        _sinks.file_level = level_number(file_level)
    if stderr_level is not None:
        _sinks.stderr_level = level_number(stderr_level)
    if syslog_level is not None:
        _sinks.syslog_level = level_number(syslog_level)
    filed = _sinks.file_level if _sinks.descriptor is not None else _QUIET
    _sinks.level_max = max(_sinks.stderr_level, filed, _sinks.syslog_level)


def set_time_format(form: str) -> None:
    """Set LogTimeFormat: the form of times in the log file."""
    _sinks.time_format = form


def reopen() -> None:
    """Open the log file again by its name, after a rotation (SIGUSR2), and log that.

    If that fails, the old file stays in use.
    """
    _sinks.do(_reopen)


def _reopen() -> None:
    log = get_logger(_sinks.program)
    try:
        _sinks.open_file()
    except OSError as error:
        log.error("log.reopen_failed", error=error)
    else:
        log.info("log.reopened", pid=os.getpid())


class Logger:
    """Writes events. `bind` returns one that adds fields to each of its lines."""

    __slots__ = ("_fields", "name")

    def __init__(self, name: str, fields: dict[str, Any] | None = None) -> None:
        self.name = name
        self._fields = fields or {}

    def bind(self, **fields: Any) -> Logger:
        """A logger that adds these fields to its lines: a request id, a cycle number."""
        return Logger(self.name, {**self._fields, **fields})

    def enabled(self, level: str) -> bool:
        """Whether a line of that level is written: check before collecting costly fields."""
        return LEVELS.index(level) <= _sinks.level_max

    def write(self, level: int, event: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
        """Write an event, followed by the traceback of `error`."""
        if level > _sinks.level_max:
            return
        text = format_event(event, {**self._fields, **fields})
        if error is not None:
            text += "\n" + "".join(traceback.format_exception(error)).rstrip()
        _sinks.write(level, text)

    def fatal(self, event: str, *, exception: BaseException | None = None, **fields: Any) -> None:
        """The daemon cannot continue. Returns when the line is written."""
        self.write(_FATAL, event, fields, exception)
        _sinks.flush(FLUSH_SECONDS)

    def error(self, event: str, *, exception: BaseException | None = None, **fields: Any) -> None:
        """A failure that an administrator must act on."""
        self.write(_ERROR, event, fields, exception)

    def warning(self, event: str, **fields: Any) -> None:
        """Should be checked. Slurm has no such level: shown with `info` and marked."""
        self.write(_INFO, f"warning: {event}", fields)

    def info(self, event: str, **fields: Any) -> None:
        """An event for an operator's daily reading."""
        self.write(_INFO, event, fields)

    def verbose(self, event: str, **fields: Any) -> None:
        """More detail than for daily reading."""
        self.write(_VERBOSE, event, fields)

    def debug(self, event: str, **fields: Any) -> None:
        """Details for finding a fault, shown with -v."""
        self.write(_DEBUG, event, fields)

    def debug2(self, event: str, **fields: Any) -> None:
        """Each request and message, shown with -vv."""
        self.write(_DEBUG + 1, event, fields)

    def debug3(self, event: str, **fields: Any) -> None:
        """Inner steps of a request, shown with -vvv."""
        self.write(_DEBUG + 2, event, fields)


def get_logger(name: str) -> Logger:
    """A logger for a daemon or a part of one. All write to the sinks that `configure` set."""
    return Logger(name)


def flush_standard_streams() -> None:
    """Write print's buffered output, before a fork or an exit that skips it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
