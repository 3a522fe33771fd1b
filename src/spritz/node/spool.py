"""Steps on disk: one directory each in the node's spool. Layout and meaning are in `stepd.spec`.

A step that finds the spool full or failing gets its directory in a reserve, in another file system: it runs, and a
restarted daemon finds it. The node is drained meanwhile, so few need it.

Source: slurm.conf(5) SlurmdSpoolDir.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import socket
import stat
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from spritz.model.errors import UnsupportedFormat
from spritz.model.ids import STEP_BATCH, step_name
from spritz.model.job.record import Job
from spritz.model.node_daemon.reports import RunningStep, StepFinished
from spritz.model.scarcity import UNWRITABLE
from spritz.node import stored_job
from spritz.runtime import disk
from spritz.runtime.randomness import SystemRandomness
from spritz.stepd import record, spec

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES = (spec.RECORD, spec.CONTROL, spec.SCRIPT)
_IDENTITY = "identity"
_BOOT = "boot"

#: in the directory of a step that was begun before the machine's last boot; removed with the directory
_BEFORE_BOOT = "before_boot"
_PROBE = "probe."
#: Empty directories kept for later steps: creating inodes is the main cost of a step's files.
_FREE = "free."
_FREE_MAX = 8
#: Where a reserve may be: in memory, or at least in a file system that others may have filled less.
_RESERVES = ("/run", "/dev/shm", "/tmp")


class FoundStep(Struct, frozen=True, kw_only=True):
    """A step left by an earlier daemon. `begun`: a supervisor has, or had, it."""

    key: RunningStep
    job: Job
    directory: str
    task_ids: tuple[int, ...]
    begun: bool
    result: StepFinished | None


class LeftSteps(Struct, frozen=True, kw_only=True):
    """The steps that an earlier daemon left in a spool.

    `unreadable` are directories whose record makes no sense though a supervisor has, or had, them; `unsupported` those
    whose record a later release wrote, with the reason.
    """

    found: list[FoundStep]
    unreadable: list[str]
    unsupported: list[tuple[str, str]]


class Spool:
    """The spool directory of one node."""

    def __init__(self, path: str, covered: Iterable[str] = ()) -> None:
        """`covered`: directories that tasks do not see, since they have others in their place."""
        self.path = path
        self._free: list[str] = []
        self._kept = 0
        name = f"spritz-{hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:16]}-{os.geteuid()}"
        self._reserves = [f"{parent}/{name}" for parent in _RESERVES if parent not in covered]
        #: steps whose directories are in a reserve
        self._diverted: dict[RunningStep, str] = {}

    def directory(self, key: RunningStep) -> str:
        """The step's directory, whether it exists or not."""
        return self._diverted.get(key) or f"{self.path}/{_name(key)}"

    def divert(self, key: RunningStep) -> bool:
        """Give the step a directory in a reserve, from now on. Returns whether there is one."""
        if key in self._diverted:
            return False
        self.remove_if_possible(self.directory(key))
        reserve = self.reserve(runs=key.step_id == STEP_BATCH)
        if reserve:
            self._diverted[key] = f"{reserve}/{_name(key)}"
        return bool(reserve)

    def reserve(self, *, runs: bool) -> str:
        """A directory of ours in a file system other than the spool's; "": there is none. `runs`: one that lets
        programs run, as a batch script does.
        """
        device = _device(self.path)
        for path in self._reserves:
            try:
                parent = os.path.dirname(path)
                if _device(parent) == device or (runs and os.statvfs(parent).f_flag & os.ST_NOEXEC):
                    continue
                return str(disk.private_directory(path, mode=0o711))
            except OSError:
                continue
        return ""

    def create(self, directory: str, known: spec.SupervisorSpec) -> None:
        """Write a step's spool. Raises OSError: FileExistsError if the step was started before."""
        entry = record.spec_entry(known)
        if self._free and os.path.dirname(directory) == self.path and self._reuse(self._free.pop(), directory, entry):
            return
        try:
            os.mkdir(directory, 0o711)
        except FileNotFoundError:  # the whole spool was deleted under us
            os.makedirs(self.path, mode=0o755, exist_ok=True)
            os.mkdir(directory, 0o711)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(f"{directory}/{spec.RECORD}", flags, 0o600)
            try:
                record.append(descriptor, entry)
            finally:
                os.close(descriptor)
        except OSError:
            self.remove_if_possible(directory)
            raise

    def _reuse(self, free: str, directory: str, entry: bytes) -> bool:
        """Make a kept directory this step's. The record is whole before it has the step's name."""
        try:
            descriptor = os.open(f"{free}/{spec.RECORD}", os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # the whole spool was deleted under us
            self._free.clear()
            return False
        try:
            record.append(descriptor, entry)
            os.rename(free, directory)
        except OSError as error:
            self.remove_if_possible(free)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(error.errno, error.strerror, directory) from error
            raise
        finally:
            os.close(descriptor)
        return True

    def recycle(self, key: RunningStep) -> None:
        """Forget a step whose supervisor has reported its end; keep the directory for another step. Raises OSError."""
        directory, free = self.directory(key), f"{self.path}/{_FREE}{self._kept}"
        if len(self._free) >= _FREE_MAX or key in self._diverted:
            self.forget(key)
            return
        try:
            # Everything but the record: whatever else is said there of this step would be said of the next one.
            for name in os.listdir(directory):
                if name != spec.RECORD:
                    os.unlink(f"{directory}/{name}")
            os.truncate(f"{directory}/{spec.RECORD}", 0)
            os.rename(directory, free)
        except OSError:
            self.remove(directory)
            return
        self._kept += 1
        self._free.append(free)

    def forget(self, key: RunningStep) -> None:
        """Remove the step's directory, wherever it is. Raises OSError."""
        directory = self.directory(key)
        diverted = self._diverted.pop(key, None)
        self.remove(directory)
        if diverted:
            self._remove_empty_reserves()

    def _remove_empty_reserves(self) -> None:
        for path in self._places()[1:]:
            with contextlib.suppress(OSError):  # steps use it
                names = os.listdir(path)
                if all(name.startswith(spec.SUPERVISOR) for name in names):
                    for name in names:  # a supervisor can do without
                        os.unlink(f"{path}/{name}")
                    os.rmdir(path)

    def remove_if_possible(self, directory: str) -> None:
        """Remove as `remove` does, from a disk that may refuse it: the next daemon finds the remains."""
        with contextlib.suppress(OSError):
            self.remove(directory)

    def remove(self, directory: str) -> None:
        """Forget a step; does nothing if it was forgotten already. Raises OSError."""
        for name in _NAMES:
            try:
                os.unlink(f"{directory}/{name}")
            except FileNotFoundError:
                continue
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            # Files of another version of this daemon: it must not keep this one from starting.
            shutil.rmtree(directory, ignore_errors=True)

    def identity(self) -> str:
        """A random word with the lifetime of the spool's content. Raises OSError if it cannot be stored."""
        path = f"{self.path}/{_IDENTITY}"
        try:
            with open(path, encoding="ascii") as file:
                known = file.read().strip()
        except (FileNotFoundError, ValueError):
            known = ""
        if not known:
            known = SystemRandomness().token(8).hex()
            fresh = f"{path}.new"
            with open(fresh, "w", encoding="ascii") as file:
                file.write(f"{known}\n")
                file.flush()
                os.fsync(file.fileno())
            os.rename(fresh, path)
        return known

    def last_boot(self) -> str:
        """The id of the boot in which a daemon last served here; "" if unknown. Raises OSError."""
        try:
            with open(f"{self.path}/{_BOOT}", encoding="ascii") as file:
                return file.read().strip()
        except (FileNotFoundError, ValueError):
            return ""

    def store_boot(self, boot_id: str) -> None:
        """Store the id of this boot for later daemons. Raises OSError."""
        disk.write_atomically(f"{self.path}/{_BOOT}", f"{boot_id}\n".encode(), mode=0o600)

    def forget_identity(self) -> None:
        """Forget what was launched here (-c)."""
        try:
            os.unlink(f"{self.path}/{_IDENTITY}")
        except FileNotFoundError:
            pass

    def scan(self) -> LeftSteps:
        """The steps left by an earlier daemon. Directories that never became steps are removed on the way.

        Raises OSError if the spool cannot be read.
        """
        steps: list[FoundStep] = []
        unreadable: list[str] = []
        unsupported: list[tuple[str, str]] = []
        for directory in [path for parent in self._places() for path in self._entries(parent)]:
            try:
                step = self._look(directory)
            except UnsupportedFormat as error:
                unsupported.append((directory, error.message))
                continue
            if step is not None:
                steps.append(step)
                if os.path.dirname(directory) != self.path:
                    self._diverted[step.key] = directory
            elif give_up(directory):
                self.remove_if_possible(directory)
            else:
                unreadable.append(directory)
        self._remove_empty_reserves()
        return LeftSteps(found=steps, unreadable=unreadable, unsupported=unsupported)

    def _places(self) -> list[str]:
        """The spool, and the reserves that an earlier daemon used."""
        ours = []
        for path in self._reserves:
            with contextlib.suppress(OSError):
                if os.lstat(path).st_uid == os.geteuid():
                    ours.append(path)
        return [self.path, *ours]

    def _entries(self, parent: str) -> list[str]:
        """The directories of steps. Other names are removed, if possible: this must not keep a daemon from starting."""
        directories = []
        for entry in sorted(os.listdir(parent)):
            path = f"{parent}/{entry}"
            if entry.startswith(spec.SUPERVISOR):
                # Of a supervisor that was killed; a living one can do without, and may remove it at this moment.
                with contextlib.suppress(OSError):
                    os.unlink(path)
            elif not os.path.isdir(path):
                continue
            elif entry.startswith(_FREE):
                self.remove_if_possible(path)
            elif entry.startswith("job"):
                directories.append(path)
        return directories

    def _look(self, directory: str) -> FoundStep | None:
        step_record = record.read(f"{directory}/{spec.RECORD}")
        if step_record is None:
            return None  # cut short: the supervisor was never asked for (or the disk has lost it)
        known = step_record.spec
        try:
            job = stored_job.unpack(known)
        except msgspec.DecodeError:
            return None
        return FoundStep(
            key=RunningStep(known.job_id, known.restart_count, known.step_id),
            job=job,
            directory=directory,
            task_ids=tuple(task.task_id for task in known.tasks),
            begun=step_record.result is not None or not give_up(directory),
            result=step_record.result,
        )


def try_socket(path: str) -> None:
    """Check that supervisors can listen in the spool. Raises OSError if its file system has no sockets."""
    name = f"{_PROBE}{os.getpid()}"
    parent = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
            probe.bind(f"/proc/self/fd/{parent}/{name}")
        os.unlink(name, dir_fd=parent)
    finally:
        os.close(parent)


def read_record(directory: str) -> record.SpooledStep | None:
    """The record of the step; None also if it cannot be read: processes are then found by their mark."""
    try:
        return record.read(f"{directory}/{spec.RECORD}")
    except (OSError, UnsupportedFormat):
        return None


def sync(directories: list[str]) -> dict[str, OSError]:
    """Write the records of these steps to disk; some may have been forgotten meanwhile. Returns what failed."""
    failed = {}
    for directory in directories:
        try:
            descriptor = os.open(f"{directory}/{spec.RECORD}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            continue
        except OSError as error:
            failed[directory] = error
    return failed


def give_up(directory: str) -> bool:
    """Make sure that no supervisor can begin this step any more; False if one has begun it, or may have."""
    path = f"{directory}/{spec.CONTROL}"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return not _has_begun(path)
    except FileNotFoundError:
        return False  # the directory was deleted under us
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        if not _has_begun(path):
            # The disk may have room for the name in a moment. No supervisor begins without a record.
            with contextlib.suppress(OSError):
                os.unlink(f"{directory}/{spec.RECORD}")
        return not _has_begun(path)
    return True


def mark_before_boot(directory: str) -> None:
    """Store that the machine has booted since the step began, as far as the disk lets it."""
    with contextlib.suppress(OSError):
        os.close(os.open(f"{directory}/{_BEFORE_BOOT}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def is_before_boot(directory: str) -> bool:
    """Whether an earlier daemon has stored that."""
    return os.path.exists(f"{directory}/{_BEFORE_BOOT}")


def _has_begun(path: str) -> bool:
    """Whether the name is that of a supervisor's socket."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def spool_reason(number: int) -> str:
    """Why a node whose spool cannot be written is drained; `number` is the errno. The first text is Slurm's."""
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "SlurmdSpoolDir is full"
    return f"SlurmdSpoolDir cannot be written: {os.strerror(number)}"


def _name(key: RunningStep) -> str:
    step = "batch" if key.step_id == STEP_BATCH else step_name(key.step_id)
    return f"job{key.job_id:05d}.{key.restart_count}.{step}"


def _device(path: str) -> int:
    """The file system of a path; 0 if there is none."""
    try:
        return os.stat(path).st_dev
    except OSError:
        return 0


def connect(directory: str) -> socket.socket | None:
    """A connection to a living supervisor; None if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        parent = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{parent}/{spec.CONTROL}")
        finally:
            os.close(parent)
    except OSError:
        connection.close()
        return None
    connection.setblocking(False)
    return connection
