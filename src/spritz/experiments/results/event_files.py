"""A program in a job: copies scalars from the files of TensorBoard and Weights & Biases into the run's metrics.

A program that logs with either of them needs no line for Spritz: its values reach `spritz runs`, `compare` and the
ranking and early stopping of sweeps. Scalars are appended to `$SPRITZ_RUN_DIR/logged.jsonl`, in the form of
metrics.jsonl (`metrics`); `logged.json` has how far each file was read, so that a later life of the run goes on there.
The sampler (`inside`) calls `collect` while the command runs, the job's script runs this file at the end. It is copied
below the home of runs and imports only the standard library, as `inside` does.

Sources: TensorBoard's event.proto, summary.proto and tensor.proto in TFRecord framing (length, checksum, record,
checksum); W&B's wandb_internal.proto in LevelDB's log format (blocks of 32 KiB).
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

LOGGED = "logged.jsonl"
_PLACES = "logged.json"
#: A record with an image or a model is longer.
_RECORD_BYTES_MAX = 1 << 20
#: Bytes read of one file in one call; the next call goes on.
_BYTES_MAX = 64 << 20
#: Directories of a program's splits, whose tags have the same names (as Keras writes them).
_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "eval", "evaluation", "test"})
_IGNORED = frozenset({"__pycache__", ".git", "node_modules", ".venv", "site-packages"})
_FLOAT, _DOUBLE = 1, 2
_BLOCK_BYTES = 32 << 10
_WANDB_HEADER_BYTES = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4

Row = dict[str, Any]


def collect(directory: Path) -> int:
    """Append the scalars that are new; returns how many lines. Symbolic links are not followed: what lies behind them
    may be another run's.
    """
    paths = list(_event_files(directory))
    if not paths:
        return 0
    descriptor = os.open(directory / _PLACES, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as places_file:
        fcntl.lockf(places_file, fcntl.LOCK_EX)  # the sampler's last call and the script's may meet
        try:
            places: dict[str, int] = json.load(places_file)
        except ValueError:
            places = {}
        rows: list[Row] = []
        for path in paths:
            name = os.path.relpath(path, directory)
            try:
                with path.open("rb") as file:
                    read = _weights_and_biases if path.suffix == ".wandb" else _tensorboard
                    more, places[name] = read(file, places.get(name, 0), _prefix(path))
            except OSError:
                continue
            rows += more
        with open(directory / LOGGED, "a", encoding="utf-8") as logged:
            logged.write("".join(json.dumps(row) + "\n" for row in rows))
        # Written after the lines: killed in between, some lines come twice, and none is lost.
        places_file.seek(0)
        places_file.write(json.dumps(places))
        places_file.truncate()
    return len(rows)


def _event_files(directory: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in _IGNORED)
        for name in sorted(names):
            path = Path(place, name)
            if (name.startswith("events.out.tfevents.") or name.endswith(".wandb")) and not path.is_symlink():
                yield path


def _prefix(path: Path) -> str:
    """The directory's name, where several directories of one program have the same tags; "" elsewhere."""
    # `add_scalars` of PyTorch makes NAME/PART below the writer's directory.
    nested = any(True for above in path.parents[1:3] for _ in above.glob("events.out.tfevents.*"))
    return f"{path.parent.name}/" if nested or path.parent.name in _SPLITS else ""


# --- TensorBoard ------------------------------------------------------------------------------------------------------


def _tensorboard(file: BinaryIO, begin: int, prefix: str) -> tuple[list[Row], int]:
    """(rows, where the next call begins): a record that is incomplete is read then."""
    rows: list[Row] = []
    at, size = begin, os.fstat(file.fileno()).st_size
    while at + 12 <= size and at - begin < _BYTES_MAX:
        file.seek(at)
        (length,) = struct.unpack("<Q", file.read(12)[:8])
        if at + length + 16 > size:
            break
        if length <= _RECORD_BYTES_MAX:
            rows += _event(file.read(length), prefix)
        at += length + 16
    return rows, at


def _event(record: bytes, prefix: str) -> Iterator[Row]:
    fields = dict(_fields(record))
    at = struct.unpack("<d", fields[1])[0] if isinstance(fields.get(1), bytes) and len(fields[1]) == 8 else 0.0
    scalars = {}
    for number, summary_value in _fields(fields.get(5, b"")):
        if number == 1 and (scalar := _scalar(summary_value)) is not None:
            scalars[prefix + scalar[0]] = scalar[1]
    if scalars:
        yield {"step": fields.get(2, 0), "time": at, **scalars}


def _scalar(summary_value: bytes) -> tuple[str, float] | None:
    """(tag, number) of a summary's value; None for images, texts and histograms."""
    fields = dict(_fields(summary_value))
    tag = fields.get(1, b"").decode("utf-8", "replace")
    if len(simple := fields.get(2, b"")) == 4:
        return tag, struct.unpack("<f", simple)[0]
    tensor = dict(_fields(fields.get(8, b"")))
    form, width = {_FLOAT: ("<f", 4), _DOUBLE: ("<d", 8)}.get(tensor.get(1, 0), ("", 0))
    if not width or any(number == 2 for number, _ in _fields(tensor.get(2, b""))):
        return None
    content = tensor.get(4) or tensor.get(5 if width == 4 else 6) or b""
    return (tag, struct.unpack(form, content)[0]) if len(content) == width else None


# --- Weights & Biases -------------------------------------------------------------------------------------------------


def _weights_and_biases(file: BinaryIO, begin: int, prefix: str) -> tuple[list[Row], int]:
    """(rows, where the next call begins)."""
    rows: list[Row] = []
    at, size = max(begin, _WANDB_HEADER_BYTES), os.fstat(file.fileno()).st_size
    complete, parts = at, b""
    while complete - begin < _BYTES_MAX:
        if _BLOCK_BYTES - at % _BLOCK_BYTES < _WANDB_HEADER_BYTES:
            at += _BLOCK_BYTES - at % _BLOCK_BYTES
        file.seek(at)
        header = file.read(_WANDB_HEADER_BYTES)
        if len(header) < _WANDB_HEADER_BYTES:
            break
        _, length, form = struct.unpack("<IHB", header)
        if at + _WANDB_HEADER_BYTES + length > size or form not in (_FULL, _FIRST, _MIDDLE, _LAST):
            break
        parts = (b"" if form in (_FULL, _FIRST) else parts) + file.read(length)
        at += _WANDB_HEADER_BYTES + length
        if form in (_FULL, _LAST):
            complete = at
            if len(parts) <= _RECORD_BYTES_MAX:
                rows += _history(parts)
    return rows, complete


def _history(record: bytes) -> Iterator[Row]:
    """The numbers of one `wandb.log`; names of nested mappings are joined by dots."""
    for number, history in _fields(record):
        if number != 2 or not isinstance(history, bytes):
            continue
        row: Row = {}
        for number_of_part, part in _fields(history):
            if number_of_part != 1:
                continue
            key, texts = _name_and_text(part)
            try:
                number_logged = json.loads(texts)
            except ValueError:
                continue
            if isinstance(number_logged, int | float) and not isinstance(number_logged, bool):
                row[{"_step": "step", "_timestamp": "time"}.get(key, key)] = number_logged
        row = {key: number_logged for key, number_logged in row.items() if not key.startswith("_")}
        if row.keys() - {"step", "time"}:
            yield row


def _name_and_text(part: bytes) -> tuple[str, str]:
    """(name, JSON text) of one logged name."""
    names, text = [], ""
    for number, content in _fields(part):
        if number in (1, 2):
            names.append(content.decode("utf-8", "replace"))
        elif number == 16:
            text = content.decode("utf-8", "replace")
    return ".".join(filter(None, names)), text


# --- Protocol buffers -------------------------------------------------------------------------------------------------


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, content) of a message's fields: an integer, or bytes for what has a length or a fixed size. Ends at the
    first field that is damaged.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, form = key >> 3, key & 7
        if form == 0:
            content, at = _varint(message, at)
            yield number, content
            continue
        if form == 2:
            length, at = _varint(message, at)
        elif form in (1, 5):
            length = 8 if form == 1 else 4
        else:
            return
        if at + length > len(message):
            return
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """(number, place after it); of a damaged one the place is the end."""
    number = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    return 0, len(message)


if __name__ == "__main__":
    try:
        collect(Path(os.environ["SPRITZ_RUN_DIR"]))
    except Exception as error:  # the job's end must not depend on it
        sys.stderr.write(f"spritz: metrics: {type(error).__name__}: {error}\n")
