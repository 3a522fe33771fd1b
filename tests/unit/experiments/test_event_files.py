"""Scalars in the files of TensorBoard and W&B become metrics, each once, also from files that still grow."""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spritz.experiments import inside
from spritz.experiments.results import event_files, metrics
from spritz.experiments.sweeps import trials

#: A file of tensorboardX: its version, and acc = 0.5 at step 2.
TENSORBOARD = base64.b64decode(
    "GAAAAAAAAACjf0siCSgxfvRCw9pBGg1icmFpbi5FdmVudDoyAdNuNxkAAAAAAAAAi/EIKAn8JX70QsPaQRACKgwKCgoDYWNjFQAAAD+GoR7s"
)
#: A record of W&B 0.2x: one `log` of numbers, a nested mapping, a text and a truth value.
HISTORY = base64.b64decode(
    "CAoSqQEKCxIFX3N0ZXCCAQEwCgoSBGxvc3OCAQEyChESBm5lc3RlZBIDYWNjggEBMAoMEgR0ZXh0ggEDIngiCg0SBGZsYWeCAQR0cnVlChsSA2Jp"
    "Z4IBEzEwMDAwMDAwMDAwMDAwMDAwMDAKJRIKX3RpbWVzdGFtcIIBFjEuNzk2MDE3MTA2NjU1NzI2NGUrMDkKGBIIX3J1bnRpbWWCAQswLjM4NzUzNDQwNhIA"
)


def _record(record: bytes) -> bytes:
    return struct.pack("<QI", len(record), 0) + record + b"\0\0\0\0"


def _field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return bytes([number << 3, content])
    return bytes([number << 3 | 2, len(content)]) + content


def _scalar(tag: str, step: int, number: float) -> bytes:
    """An event as TensorFlow 2 writes it: a tensor without dimensions."""
    tensor = _field(1, 1) + _field(2, b"") + _field(5, struct.pack("<f", number))
    value = _field(1, tag.encode()) + _field(8, tensor)
    return _record(b"\x09" + struct.pack("<d", 5.0) + _field(2, step) + _field(5, _field(1, value)))


def _blocks(*records: bytes) -> bytes:
    """Records in LevelDB's log format, after the header of W&B."""
    text = bytearray(b":W&B" + b"\xe1\xbe\0")
    for record in records:
        first = True
        while first or record:
            room = event_files._BLOCK_BYTES - len(text) % event_files._BLOCK_BYTES
            if room < 7:
                text += b"\0" * room
                continue
            part, record = record[: room - 7], record[room - 7 :]
            form = (1 if first else 4) if not record else (2 if first else 3)
            text += struct.pack("<IHB", 0, len(part), form) + part
            first = False
    return bytes(text)


def _points(directory: Path) -> list[tuple[str, float, float | None]]:
    event_files.collect(directory)
    return [(point.name, point.value, point.step) for point in metrics.written(directory)]


def test_tensorboards_scalars_are_points_and_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "code" / "runs" / "events.out.tfevents.1.host"
    path.parent.mkdir(parents=True)
    path.write_bytes(TENSORBOARD)
    assert _points(tmp_path) == [("acc", 0.5, 2.0)]
    torn = _scalar("loss", 3, 0.25)
    with path.open("ab") as file:
        file.write(torn[:-1])
    assert len(_points(tmp_path)) == 1
    with path.open("ab") as file:
        file.write(torn[-1:] + _record(b"x" * 10) + _scalar("loss", 4, 0.125))
    assert _points(tmp_path) == [("acc", 0.5, 2.0), ("loss", 0.25, 3.0), ("loss", 0.125, 4.0)]
    assert metrics.latest(tmp_path, [("r", tmp_path, 0.0)], whole=True) == {"r": {"acc": 0.5, "loss": 0.125}}
    assert trials.metrics_of(tmp_path) == {"acc": 0.5, "loss": 0.125}
    assert trials.Reports(tmp_path, "loss").read() == {3: 0.25, 4: 0.125}


def test_tags_of_several_directories_are_kept_apart_and_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "other"
    directory = tmp_path / "run"
    for place in ("logs/train", "logs/validation", "x", "x/acc/model"):
        (directory / place).mkdir(parents=True)
        (directory / place / "events.out.tfevents.1.h").write_bytes(TENSORBOARD)
    elsewhere.mkdir()
    (elsewhere / "events.out.tfevents.1.h").write_bytes(TENSORBOARD)
    (directory / "linked").symlink_to(elsewhere)
    assert sorted(name for name, _, _ in _points(directory)) == ["acc", "model/acc", "train/acc", "validation/acc"]


def test_wandb_history_is_read_across_blocks_and_calls(tmp_path: Path) -> None:
    path = tmp_path / "wandb" / "offline-run-1" / "run-1.wandb"
    path.parent.mkdir(parents=True)
    whole = _blocks(_field(5, b"config"), HISTORY, b"\x2a" + b"\x80\x80\x04" + b"o" * 65536, HISTORY)
    path.write_bytes(whole[: len(whole) // 2])
    first = [("loss", 2.0, 0.0), ("nested.acc", 0.0, 0.0)]
    assert [point for point in _points(tmp_path) if point[0] != "big"] == first
    path.write_bytes(whole)
    assert [point for point in _points(tmp_path) if point[0] != "big"] == first * 2


@pytest.mark.parametrize("damage", [b"", b"\xff" * 40, b":W&B", TENSORBOARD[:20], os.urandom(500)])
def test_damaged_files_give_nothing(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "events.out.tfevents.1.h").write_bytes(damage)
    (tmp_path / "run-1.wandb").write_bytes(damage)
    (tmp_path / "logged.json").write_text("{")
    assert _points(tmp_path) == []


def test_a_programs_own_line_counts_before_what_it_logged(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.h").write_bytes(TENSORBOARD)
    (tmp_path / "metrics.jsonl").write_text('{"acc": 0.9}\n')
    event_files.collect(tmp_path)
    assert trials.metrics_of(tmp_path) == {"acc": 0.9}
    reports = trials.Reports(tmp_path, "acc")
    assert reports.read() == {2: 0.5, 3: 0.9}
    assert reports.last == 0.9
    assert metrics.latest(tmp_path, [("r", tmp_path, 0.0)], whole=True) == {"r": {"acc": 0.9}}


def test_the_program_ends_well_whatever_there_is(tmp_path: Path) -> None:
    def end(**variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", event_files.__file__]
        return subprocess.run(command, env=variables, text=True, capture_output=True, check=True)

    (tmp_path / "events.out.tfevents.1.h").write_bytes(TENSORBOARD)
    assert end(SPRITZ_RUN_DIR=str(tmp_path)).stderr == ""
    logged: dict[str, Any] = json.loads((tmp_path / "logged.jsonl").read_text())
    assert (logged["acc"], logged["step"]) == (0.5, 2)
    (tmp_path / "logged.json").unlink()
    (tmp_path / "logged.json").mkdir()
    assert end(SPRITZ_RUN_DIR=str(tmp_path)).stderr.startswith("spritz: metrics: IsADirectoryError")


def test_the_sampler_calls_the_collector_of_its_copy(tmp_path: Path) -> None:
    copy = tmp_path / "events-0.py"
    copy.write_bytes(Path(event_files.__file__).read_bytes())
    (tmp_path / "events.out.tfevents.1.h").write_bytes(TENSORBOARD)
    collect = inside.collector(str(copy))
    assert collect is not None
    assert (collect(tmp_path), collect(tmp_path)) == (1, 0)
    assert inside.collector("") is None
