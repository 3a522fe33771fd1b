"""A run as one file that reproduces it elsewhere: record, code, logs and metrics in a compressed archive.

NAME/README.md          what ran, and how to repeat it with and without Spritz
NAME/run.json, events.jsonl, metrics.jsonl, logged.jsonl, log/   as in the run's directory; secrets are masked there
NAME/requirements.txt   the packages of its interpreter
NAME/code/, sources/    the snapshots' files
NAME/files/             what it wrote, if asked for

`unpack` makes a run of it in another home. It computes the code's trees again and refuses an archive whose code is not
what the record says.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from spritz.experiments.code import snapshot, trimming
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import states
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Entry, Store
from spritz.experiments.results import event_files, markdown, metrics, written

#: What an archive has below its run's name.
_ENTRIES = frozenset({
    "README.md", "requirements.txt", "run.json", "events.jsonl", metrics.FILE, event_files.LOGGED, "log", "code",
    "sources", "files",
})  # fmt: skip
_REPEAT = """
## Repeat it

With Spritz, on any cluster with Slurm:

    spritz import {archive}
    spritz rerun {name}

Without it, in `code{place}`, with Python {python} and the packages of `requirements.txt`:

    {command}
"""
#: For steps and functions, which depend on values of the program that called them.
_REPEAT_PROGRAM = """
## Repeat it

It was a step of a pipeline, or a call of a Python function. Run that program, in `code{place}`, with Python {python}
and the packages of `requirements.txt`.
"""


def pack(store: Store, entry: Entry, target: Path, *, with_files: bool) -> int:
    """Write the archive; returns its size in bytes. Raises ExperimentError; then there is no archive."""
    directory = Path(entry.directory)
    run = record.read(directory)
    if run.runs_in_place:
        raise ExperimentError(f"{run.name} ran in place, without a snapshot of its code")
    surroundings = record.surroundings(store.home, directory, run)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tempfile.TemporaryDirectory(prefix="bundle-") as folder:
            root = Path(folder, run.name)
            root.mkdir()
            _lay_down(store, run, root)
            python = surroundings.get("python", {})
            (root / "requirements.txt").write_text("".join(f"{line}\n" for line in python.get("packages", ())))
            repeat = (_REPEAT_PROGRAM if run.shown else _REPEAT).format(
                archive=target.name, name=run.name, python=python.get("python", "?"), command=run.command_line,
                place=f"/{run.code['directory']}" if run.code["directory"] not in ("", ".") else "",
            )  # fmt: skip
            (root / "README.md").write_text(
                markdown.text(entry, run, surroundings) + repeat, encoding="utf-8", errors="replace"
            )
            record.write(root, replace(run, surroundings=surroundings, shared=""))
            # In one file, since the names of the run's have names of machines.
            events = "".join(f"{record.dumps(event)}\n" for event in record.events(directory))
            (root / "events.jsonl").write_text(events, encoding="utf-8")
            _write_logged(store.home, directory, root)
            with tarfile.open(scratch, "w:gz", compresslevel=6) as archive:
                archive.add(root, run.name, filter=_anonymous)
                if (directory / metrics.FILE).is_file():
                    archive.add(directory / metrics.FILE, f"{run.name}/{metrics.FILE}", filter=_anonymous)
                if (directory / "log").is_dir():
                    archive.add(directory / "log", f"{run.name}/log", filter=_anonymous)
                for file in written.files(store.home, directory, run) if with_files else ():
                    archive.add(directory / "code" / file.path, f"{run.name}/files/{file.path}", filter=_anonymous)
        os.replace(scratch, target)
    except OSError as error:
        raise ExperimentError(f"{target}: {error.strerror or error}") from error
    finally:
        scratch.unlink(missing_ok=True)
    return target.stat().st_size


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The archive does not tell whose files they were."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _write_logged(home: Path, directory: Path, root: Path) -> None:
    """The values that the run has logged for TensorBoard and W&B, after those that only MLflow has."""
    path = directory / event_files.LOGGED
    logged = path.read_bytes() if path.is_file() else b""
    names = {point.name for point in metrics.written(directory)}
    tracked = [point for point in metrics.tracked(home, directory) if point.name not in names]
    if logged or tracked:
        lines = "".join(f"{metrics.line(point)}\n" for point in tracked)
        (root / event_files.LOGGED).write_bytes(lines.encode() + logged)


def _lay_down(store: Store, run: Run, root: Path) -> None:
    repository = store.home / "snapshots.git"
    snapshot.check_out(repository, run.code["tree"], root / "code")
    for source in run.code.get("sources", ()):
        snapshot.check_out(repository, source["tree"], root / "sources" / source["name"])


def unpack(store: Store, archive: Path, owner: str) -> Run:
    """Add the archive's run to the owner's runs, under its own name or, if that is taken, the next free one. What it
    wrote lies where a run's code has been removed at its end.

    Raises ExperimentError; then nothing is added.
    """
    with tempfile.TemporaryDirectory(prefix=".import-", dir=store.home) as folder:
        root = _extracted(archive, Path(folder))
        run, trees = _recorded(archive, root)
        for place, (tree, submodules) in trees.items():
            actual = "missing"
            if (root / place).is_dir():
                actual = snapshot.adopt(store.home / "snapshots.git", root / place, submodules)
            if actual != tree:
                raise ExperimentError(
                    f"{archive}: its {place} is not the code of the run (tree {actual[:12]}, recorded {tree[:12]})"
                )
        for place in trees:
            shutil.rmtree(root / place)
        if (root / "files").is_dir():
            os.rename(root / "files", root / "code")
            (root / "code" / snapshot.MARK).touch()
            os.utime(root / "code" / snapshot.MARK, (0, 0))  # all of these are newer
            (root / f"code{trimming.DONE}").write_text("The bundle had these files, which the run wrote.\n")
        base, _, number = run.name.rpartition("-")
        name = store.reserve(
            base if number.isdecimal() and base else run.name,
            owner,
            run.created_at,
            store.home / "runs",
            run.command_line,
        )
        directory = store.home / "runs" / name
        try:
            for path in root.iterdir():
                os.rename(path, directory / path.name)
            (directory / "log").mkdir(exist_ok=True)
            run = replace(run, name=name, user=owner, job_id="", group="", parent="")
            record.write(directory, run)
            values = states.from_events(record.events(directory))
            measured = metrics.latest(store.home, [(name, directory, run.created_at)], whole=True).get(name, {})
            store.queued(run, state="LOST")
            store.change(name, owner, **values, metrics=json.dumps(measured))
        except BaseException:
            store.remove(name, owner)
            shutil.rmtree(directory, ignore_errors=True)
            raise
    return run


def _recorded(archive: Path, root: Path) -> tuple[Run, dict[str, tuple[str, dict[str, str]]]]:
    """The run, and the trees of its code with their submodules, by their places. The archive may come from anybody: a
    place that leads out of it would be read, and removed. Raises ExperimentError.
    """
    try:
        run = record.read(root)
        code = snapshot.Snapshot.of(run.code)
        trees = {"code": (str(code.tree), dict(code.submodules))}
        for source in code.sources:
            trees[f"sources/{source.name}"] = str(source.tree), dict(source.submodules)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ExperimentError(f"{archive}: its run.json is damaged: {error}") from error
    return run, trees


def _extracted(archive: Path, folder: Path) -> Path:
    """The directory of the archive's only run. Raises ExperimentError for names that lead out of it."""
    links: list[tuple[Path, str]] = []
    try:
        with tarfile.open(archive) as opened:
            for member, path in _members(opened, archive):
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                if member.isdir():
                    target.mkdir(exist_ok=True)
                elif member.issym():
                    links.append((target, member.linkname))
                elif (content := opened.extractfile(member)) is not None:
                    with target.open("xb") as file:
                        shutil.copyfileobj(content, file)
                    target.chmod(0o700 if member.mode & 0o100 else 0o600)
                    os.utime(target, (member.mtime, member.mtime))
        for place, leads_to in links:  # last, so that nothing was written through one
            os.symlink(leads_to, place)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise ExperimentError(f"{archive}: {getattr(error, 'strerror', None) or error}") from error
    roots = list(folder.iterdir())
    if len(roots) != 1 or not (roots[0] / "run.json").is_file():
        raise ExperimentError(f"{archive} is not a bundle of a run", hint="`spritz export RUN` makes one")
    return roots[0]


def _members(opened: tarfile.TarFile, archive: Path) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    for member in opened:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir() or member.issym()):
            raise ExperimentError(f"{archive}: {member.name} does not belong into a bundle")
        if path.parts[1:2] and path.parts[1] not in _ENTRIES:
            raise ExperimentError(f"{archive}: {member.name} does not belong into a bundle")
        # The directories of code themselves are none: they are removed after the import.
        depth = {"code": 3, "sources": 4}.get(path.parts[1] if path.parts[1:] else "")
        if member.issym() and (depth is None or len(path.parts) < depth):
            raise ExperimentError(f"{archive}: {member.name}: only code has symbolic links")
        yield member, path
