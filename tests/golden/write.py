"""Write the golden files of the present format: `make formats`.

    python -m tests.golden.write [--bless] [--release VERSION]

Writes the schema's fingerprint into `spritz/model/stored.py`, and into `formats/NUMBER/` what this working tree stores:
    schema.txt           all stored records
    journal.db, image.*  a state directory after the scripted history (`history`), with an image of its middle
    events, image, step  one of every record with every field set (`samples`): a group, an image, a record of slurmd's
    *.json               what each of these must be read as
and into `archives/REVISION/` what slurmdbd archives of that history, with what loading it must lead to.

A format that a release has written is never written again: `released.txt` names it, to which `--release` (`make
release`) adds the present one. Archives are written once for a revision of the database. `--bless` renews the `.json`
files of all formats, for a change of what old values mean today; read the difference.

Source: docs/checklists/stored-record.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from spritz.accounting.purge import PERIODS, PurgeRules, purge
from spritz.accounting.schema import REVISION
from spritz.controller.journal.contract import Group, Image
from spritz.controller.journal.sqlite import SqliteJournal
from spritz.core.machine import Machine
from spritz.model import stored
from spritz.model.events.codec import encode_events
from spritz.stepd import record
from tests.golden import history, read, samples, schema

FORMATS = Path(__file__).parent / "formats"
ARCHIVES = Path(__file__).parent / "archives"

#: A line for each format that a release has written: its number, and the first such release.
RELEASED = Path(__file__).parent / "released.txt"

#: When all of the history is old, seconds since the epoch.
YEARS_LATER = 200_000_000.0


def released() -> dict[int, str]:
    """First release by format."""
    return {int(line.split()[0]): line.split()[1] for line in RELEASED.read_text().splitlines()}


def advice(changed: str) -> str:
    """What to do about a changed schema."""
    number = stored.FORMAT
    if number in released():
        what = (
            f"Format {number} is that of release {released()[number]} and cannot change.\n"
            f"In src/spritz/model/stored.py set FORMAT = {number + 1}. Unless only fields with defaults were added,\n"
            f"write into CHANGES[{number}] of src/spritz/model/upcast.py how a record of before becomes one of now.\n"
            "Then run `make formats`.\n"
        )
    else:
        what = (
            f"Format {number} is in no release yet: run `make formats`. Unless only fields with defaults were added\n"
            f"since format {number - 1}, CHANGES[{number - 1}] of src/spritz/model/upcast.py must say how a record of\n"
            "before becomes one of now.\n"
        )
    about = f"Stored records are not those of format {number}:\n{changed}\n\n"
    return about + what + "See docs/checklists/stored-record.md."


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    here = FORMATS / str(stored.FORMAT)
    now = schema.present()
    before = schema.parsed((here / "schema.txt").read_text()) if here.exists() else {}
    if stored.FORMAT in released():
        if before != now:
            print(advice(schema.difference(before, now)), file=sys.stderr)
            return 1
    else:
        if schema.fingerprint(now) != stored.FINGERPRINT:
            _set_fingerprint(schema.fingerprint(now))
            os.execv(sys.executable, [sys.executable, "-m", "tests.golden.write", *arguments])
        here.mkdir(parents=True, exist_ok=True)
        (here / "schema.txt").write_text(schema.text_of(now))
        _write_state(here)
        _write_samples(here)
        _bless(here)
    archives = ARCHIVES / REVISION
    if not archives.exists():
        archives.mkdir(parents=True)
        _write_archives(archives, here / "journal.db")
        _save(archives / "expected.json", read.archives(archives))
    if "--release" in arguments and stored.FORMAT not in released():
        version = arguments[arguments.index("--release") + 1]
        RELEASED.write_text(f"{RELEASED.read_text()}{stored.FORMAT} {version}\n")
    if "--bless" in arguments:
        for directory in FORMATS.iterdir():
            _bless(directory)
        for directory in ARCHIVES.iterdir():
            _save(directory / "expected.json", read.archives(directory))
    return 0


def _bless(directory: Path) -> None:
    """Make what is read now what is expected."""
    for name, value in read.all_of(directory).items():
        _save(directory / f"{name}.json", value)


def _save(path: Path, value: Any) -> None:
    """JSON with a line for each record."""
    path.write_text(_lines(value) + "\n")


def _lines(value: Any, *, depth: int = 2) -> str:
    if depth and isinstance(value, dict) and value:
        inside = [f"{json.dumps(key)}: {_lines(item, depth=depth - 1)}" for key, item in sorted(value.items())]
        return "{\n" + ",\n".join(inside) + "\n}"
    if depth and isinstance(value, list) and value:
        return "[\n" + ",\n".join(_lines(item, depth=0) for item in value) + "\n]"
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _set_fingerprint(number: int) -> None:
    path = Path(stored.__file__)
    path.write_text(re.sub(r"(?m)^FINGERPRINT = .*$", f"FINGERPRINT = 0x{number:X}", path.read_text()))


def _write_state(here: Path) -> None:
    events = history.tell()
    with TemporaryDirectory() as temporary:
        state = Path(temporary)
        journal = SqliteJournal(state)
        machine = Machine(history.SETTINGS)
        at = 0
        for size in _sizes(len(events)):
            part = events[at : at + size]
            journal.append(Group(first=at + 1, last=at + size, at=part[-1].at, payload=encode_events(part)), {})
            for event in part:
                machine.apply(event)
            at += size
            if at - size < len(events) // 2 <= at:
                journal.write_image(Image(sequence=at, payload=machine.image()))
        journal.close()
        _take_out_chance(state / "journal.db")
        for path in here.glob("image.0*"):
            path.unlink()
        for path in (state / "journal.db", *state.glob("image.*")):
            shutil.copyfile(path, here / path.name)


def _take_out_chance(path: Path) -> None:
    """The same events are the same file, which is read without the others of its directory."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("UPDATE meta SET value = 1 WHERE key = 'identity'")
    database.execute("DELETE FROM meta WHERE key = 'marked'")
    database.execute("VACUUM")
    database.close()


def _sizes(count: int) -> list[int]:
    """Sizes of groups that make up this number of events."""
    sizes: list[int] = []
    while (left := count - sum(sizes)) > 0:
        sizes.append(min(left, (1, 2, 5, 13)[len(sizes) % 4]))
    return sizes


def _write_samples(here: Path) -> None:
    (here / "events").write_bytes(encode_events(samples.events()))
    (here / "image").write_bytes(stored.encode(samples.image()))
    spec, pids, result = samples.step()
    entries = record.spec_entry(spec), record.pids_entry(pids), record.result_entry(result)
    (here / "step").write_bytes(b"".join(entries))


def _write_archives(here: Path, journal: Path) -> None:
    keys = [key for key, (archive, _) in PERIODS.items() if archive]
    kept = PurgeRules(periods=dict.fromkeys(keys, "1month"), archived=frozenset(keys), directory=str(here))
    with read.database() as store:
        read.ingest(store, journal)
        list(purge(store.engine, kept, YEARS_LATER))
    for path in here.iterdir():
        path.chmod(0o644)
        path.rename(here / path.name.split("_")[1])  # without the days, which depend on the time zone


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
