"""StateSaveLocation at start-up: the check of its cluster, recovery, and the options `-c` and `-i`.

Source: slurmctld(8) -c, -i; slurm.conf(5) StateSaveLocation, ClusterName.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from spritz.controller.journal.contract import Image, JournalCorrupt, JournalError
from spritz.controller.journal.mark import read_mark
from spritz.controller.journal.recovery import Recovered, best_image, recover, replay_readable
from spritz.controller.journal.sqlite import SqliteJournal, SqliteReading, read_images, take_lock
from spritz.core.machine import Machine
from spritz.model.errors import SpritzError
from spritz.model.events.cluster import JobIdsSkipped
from spritz.runtime.disk import UnsafeDirectory, private_directory, sync_directory, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.controller.configuration import Configuration
    from spritz.controller.options import Options
    from spritz.runtime.log import Logger


#: Job ids left out by `-i` if it is not known how many the lost events gave.
UNKNOWN_IDS = 10_000


def open_state(options: Options, configuration: Configuration, log: Logger) -> tuple[SqliteJournal, Recovered]:
    """The journal, locked, and the recovered machine.

    Raises SpritzError if it belongs to another cluster, is damaged or of a later release. `-i` uses the readable part
    of a damaged journal, but never drops records that only a later release can read.
    """
    directory = configuration.state_directory
    try:
        private_directory(directory, mode=0o755)
    except UnsafeDirectory as error:
        # Some sites let groups write to the directory: a warning, not a refusal.
        if not (directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)):
            raise SpritzError(f"StateSaveLocation {directory} {error.strerror}") from error
        log.warning("state.unsafe_directory", directory=directory, detail=error.strerror)
    except OSError as error:
        raise SpritzError(f"StateSaveLocation {directory}: {error.strerror}") from error
    _check_cluster_name(directory, configuration.settings.cluster_name)
    if options.clear:
        set_aside(directory, "cleared", log)
        _salvage_file(directory).unlink(missing_ok=True)
    try:
        _take_up_salvage(directory, again=options.ignore_errors)
        return _open(directory, configuration)
    except JournalCorrupt as error:
        if not options.ignore_errors:
            raise
        log.error("state.damaged", error=error.message, action="-i: starting with what can be read")
        return _salvage(directory, configuration, log)


def _open(directory: Path, configuration: Configuration) -> tuple[SqliteJournal, Recovered]:
    journal = SqliteJournal(directory)
    try:
        return journal, recover(journal, configuration.settings)
    except BaseException:
        journal.close()
        raise


def _check_cluster_name(directory: Path, cluster: str) -> None:
    """A directory serves one cluster: a file in it has the cluster's name, as in Slurm."""
    path = directory / "clustername"
    try:
        owner = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        write_atomically(path, f"{cluster}\n".encode())
        return
    except OSError as error:
        raise SpritzError(f"cannot read {path}: {error.strerror}") from error
    if owner != cluster:
        raise SpritzError(
            f'CLUSTER NAME MISMATCH. slurmctld has been started with "ClusterName={cluster}", but read "{owner}" from '
            "the state files in StateSaveLocation. Running multiple clusters from a shared StateSaveLocation WILL "
            f"CAUSE CORRUPTION. Remove {path} to override this safety check if this is intentional "
            "(e.g., the ClusterName has changed)."
        )


def set_aside(directory: Path, why: str, log: Logger) -> None:
    """Move the state into a subdirectory of its own, so that even `-c` deletes nothing."""
    files = _files(directory)
    if not files:
        return
    # The lock is held during the move: a running controller must not lose its files.
    probe = take_lock(directory)
    try:
        target = _unused(directory, why)
        target.mkdir(mode=0o700)
        for path in files:
            path.rename(target / path.name)
        sync_directory(target)
    finally:
        os.close(probe)
    log.info("state.set_aside", directory=target, files=len(files))


def _files(directory: Path) -> list[Path]:
    """The files of the state in a directory."""
    return [path for path in directory.iterdir() if path.name.startswith(("journal.db", "image."))]


def _unused(directory: Path, why: str) -> Path:
    number = 1
    while (target := directory / f"{why}.{number}").exists():
        number += 1
    return target


def _salvage(directory: Path, configuration: Configuration, log: Logger) -> tuple[SqliteJournal, Recovered]:
    """Keep the readable part: an image and the events up to the first damage. The rest is moved aside, not deleted."""
    ids_below = _ids_below(directory)
    machine, scripts = _readable(
        directory, configuration, lambda what: log.error("state.unreadable", detail=what, action="left out")
    )
    if machine is None:
        machine = Machine(configuration.settings)
    if not ids_below:
        ids_below = machine.state.next_job_id + UNKNOWN_IDS
    if machine.state.next_job_id < ids_below <= machine.state.settings.max_job_id:
        machine.apply(JobIdsSkipped(at=machine.state.at, next_job_id=ids_below))
    damaged = _unused(directory, "damaged").name
    _note_salvage(directory, damaged, _MOVING)
    set_aside(directory, "damaged", log)
    _note_salvage(directory, damaged, _WRITING)
    journal = SqliteJournal(directory)
    sequence = machine.state.version
    if sequence:
        journal.seed(sequence, scripts)
        journal.write_image(Image(sequence=sequence, payload=machine.image()))
    _salvage_file(directory).unlink()
    sync_directory(directory)
    log.error(
        "state.salvaged",
        jobs=len(machine.state.jobs),
        last_sequence=sequence,
        next_job_id=machine.state.next_job_id,
    )
    return journal, Recovered(machine=machine, image_sequence=sequence, replayed=0)


#: The last known step of a salvage: moving the damaged files away, or writing the new ones.
_MOVING, _WRITING = "moving", "writing"


def _salvage_file(directory: Path) -> Path:
    """While a salvage is under way: where the damaged files go, and what it does. A controller that was killed
    meanwhile, and then found the directory empty, would begin a new cluster in it.
    """
    return directory / "salvage"


def _note_salvage(directory: Path, damaged: str, doing: str) -> None:
    write_atomically(_salvage_file(directory), f"{damaged} {doing}\n".encode())


def _take_up_salvage(directory: Path, *, again: bool) -> None:
    """After a salvage that was interrupted: put the damaged files back, for another one (`again`).

    Raises JournalCorrupt without `again`.
    """
    try:
        name, doing = _salvage_file(directory).read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return
    damaged = directory / name
    if not again:
        raise JournalCorrupt(
            f"a start with -i was interrupted: {directory} is incomplete, and its files are in {damaged}",
            hint="start with -i again",
        )
    probe = take_lock(directory)
    try:
        if doing == _WRITING:
            for path in _files(directory):
                path.unlink()
            # From here on what lies in the directory is of the damaged state, also if this is interrupted.
            _note_salvage(directory, name, _MOVING)
        if damaged.exists():
            for path in _files(damaged):
                path.rename(directory / path.name)
            damaged.rmdir()
        _salvage_file(directory).unlink()
        sync_directory(directory)
    finally:
        os.close(probe)


def _ids_below(directory: Path) -> int:
    """A number above all job ids that were given; 0 if it is not known."""
    try:
        mark = read_mark(directory / "journal.db-mark")
    except OSError:
        mark = None
    return 0 if mark is None else mark.ids_below


def _readable(
    directory: Path, configuration: Configuration, unreadable: Callable[[str], None]
) -> tuple[Machine | None, dict[str, bytes]]:
    try:
        journal = SqliteReading(directory)
    except JournalError as error:
        unreadable(f"the journal, with all events and scripts: {error.message}")
        return best_image(read_images(directory), unreadable), {}
    try:
        machine = best_image(journal.images(), unreadable) or Machine(configuration.settings)
        replay_readable(journal, machine, unreadable)
        return machine, _readable_blobs(journal, machine, unreadable)
    finally:
        journal.close()


def _readable_blobs(journal: SqliteReading, machine: Machine, unreadable: Callable[[str], None]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for job in machine.state.jobs.values():
        for key in filter(None, (job.spec.script_key, job.spec.environment_key)):
            try:
                body = journal.blob(key)
            except JournalError as error:
                unreadable(f"script or environment of job {job.id}: {error.message}")
                continue
            if body is None:
                unreadable(f"script or environment of job {job.id}: {key} is missing")
            else:
                files[key] = body
    return files
