"""Steps on disk: one directory each in the node's spool. Layout and meaning are in `stepd.spec`.

Source: slurm.conf(5) SlurmdSpoolDir.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import stat

import msgspec
from msgspec import Struct

from spritz.model import stored
from spritz.model.ids import STEP_BATCH, step_name
from spritz.model.job import Job
from spritz.model.reports import RunningStep, StepFinished
from spritz.node import stored_job
from spritz.runtime import disk
from spritz.runtime.randomness import SystemRandomness
from spritz.stepd import record, spec

_NAMES = (spec.RECORD, spec.CONTROL, spec.SCRIPT)
_IDENTITY = "identity"
_BOOT = "boot"
_PROBE = "probe."
#: Empty directories kept for later steps: creating inodes is the main cost of a step's files.
_FREE = "free."
_FREE_MAX = 8


class FoundStep(Struct, frozen=True, kw_only=True):
    """A step left by an earlier daemon. `begun`: a supervisor has, or had, it."""

    key: RunningStep
    job: Job
    directory: str
    task_ids: tuple[int, ...]
    begun: bool
    result: StepFinished | None


class LeftSteps(Struct, frozen=True, kw_only=True):
    """What an earlier daemon left in a spool.

    `unreadable` are directories whose record makes no sense though a supervisor has, or had, them; `unsupported` those
    whose record a later release wrote, with the reason.
    """

    found: list[FoundStep]
    unreadable: list[str]
    unsupported: list[tuple[str, str]]


class Spool:
    """The spool directory of one node."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._free: list[str] = []
        self._kept = 0

    def directory(self, key: RunningStep) -> str:
        """The step's directory, whether it exists or not."""
        step = "batch" if key.step_id == STEP_BATCH else step_name(key.step_id)
        return f"{self.path}/job{key.job_id:05d}.{key.restart_count}.{step}"

    def create(self, directory: str, known: spec.SupervisorSpec) -> None:
        """Write a step's spool. Raises OSError: FileExistsError if the step was started before."""
        entry = record.spec_entry(known)
        if self._free and self._reuse(self._free.pop(), directory, entry):
            return
        try:
            os.mkdir(directory, 0o711)
        except FileNotFoundError:  # the whole spool was deleted under us
            os.makedirs(self.path, mode=0o755, exist_ok=True)
            os.mkdir(directory, 0o711)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(f"{directory}/{spec.RECORD}", flags, 0o600)
        try:
            record.append(descriptor, entry)
        finally:
            os.close(descriptor)

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
            self.remove(free)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(error.errno, error.strerror, directory) from error
            raise
        finally:
            os.close(descriptor)
        return True

    def recycle(self, directory: str) -> None:
        """Forget a step whose supervisor has reported its end; keep the directory for another step."""
        free = f"{self.path}/{_FREE}{self._kept}"
        if len(self._free) >= _FREE_MAX:
            self.remove(directory)
            return
        try:
            for name in (spec.CONTROL, spec.SCRIPT):
                try:
                    os.unlink(f"{directory}/{name}")
                except FileNotFoundError:
                    continue
            os.truncate(f"{directory}/{spec.RECORD}", 0)
            os.rename(directory, free)
        except OSError:
            self.remove(directory)
            return
        self._kept += 1
        self._free.append(free)

    def remove(self, directory: str) -> None:
        """Forget a step; does nothing if it was forgotten already."""
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
        for entry in sorted(os.listdir(self.path)):
            directory = f"{self.path}/{entry}"
            if entry.startswith(spec.SUPERVISOR):
                # Of a supervisor that was killed; a living one can do without, and may remove it at this moment.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}/{entry}")
                continue
            if entry.startswith(_FREE) and os.path.isdir(directory):
                self.remove(directory)
                continue
            if not entry.startswith("job") or not os.path.isdir(directory):
                continue
            try:
                step = self._look(directory)
            except stored.UnsupportedFormat as error:
                unsupported.append((directory, error.message))
                continue
            if step is not None:
                steps.append(step)
            elif give_up(directory):
                self.remove(directory)
            else:
                unreadable.append(directory)
        return LeftSteps(found=steps, unreadable=unreadable, unsupported=unsupported)

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
    """What is written of the step; None also where it cannot be read: processes are found by their mark then."""
    try:
        return record.read(f"{directory}/{spec.RECORD}")
    except (OSError, stored.UnsupportedFormat):
        return None


def sync(directories: list[str]) -> None:
    """Write the records of these steps to disk; some may have been forgotten meanwhile. Raises OSError."""
    for directory in directories:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(f"{directory}/{spec.RECORD}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def give_up(directory: str) -> bool:
    """Make sure that no supervisor can begin this step any more; False if one has begun it."""
    path = f"{directory}/{spec.CONTROL}"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return not stat.S_ISSOCK(os.stat(path).st_mode)
    return True


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
