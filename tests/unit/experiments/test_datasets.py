"""The state of data that a run reads is recorded, and a change is noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.experiments.code import datasets
from spritz.experiments.errors import ExperimentError


def version(directory: Path, word: str) -> str:
    (text,) = datasets.versions(directory, [word])
    name, _, state = text.rpartition("@")
    assert name == word
    return state


def test_small_data_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "x.bin").write_bytes(b"1")
    before = version(tmp_path, "data")
    assert before.startswith("sha256:")
    os.utime(tmp_path / "data" / "a" / "x.bin", (1, 1))
    assert version(tmp_path, "data") == before
    assert version(tmp_path, "data/a/x.bin") == version(tmp_path, str(tmp_path / "data" / "a" / "x.bin"))
    (tmp_path / "data" / "a" / "x.bin").write_bytes(b"2")
    assert version(tmp_path, "data") != before
    assert datasets.changed(tmp_path, [f"data@{before}"]) == ["data"]
    assert datasets.changed(tmp_path, datasets.versions(tmp_path, ["data"])) == []


def test_large_data_is_known_by_sizes_and_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_READ_BYTES_MAX", 1)
    (tmp_path / "x.bin").write_bytes(b"12")
    before = version(tmp_path, "x.bin")
    assert before.startswith("stat:")
    os.utime(tmp_path / "x.bin", (1, 1))
    assert version(tmp_path, "x.bin") != before


def test_of_very_many_files_the_first_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_FILES_MAX", 2)
    for name in "abc":
        (tmp_path / name).write_text(name)
    before = version(tmp_path, ".")
    assert before.startswith("partial:")
    (tmp_path / "a").write_text("other")
    assert version(tmp_path, ".") != before


def test_data_that_is_gone_has_changed(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1")
    recorded = datasets.versions(tmp_path, ["x"])
    (tmp_path / "x").unlink()
    assert datasets.changed(tmp_path, recorded) == ["x"]


def test_names_with_a_version_and_other_words_are_kept(tmp_path: Path) -> None:
    assert datasets.versions(tmp_path, ["imagenet@2", "s3://bucket/x"]) == ["imagenet@2", "s3://bucket/x"]
    assert datasets.changed(tmp_path, ["imagenet@2", "user@host", "s3://bucket/x"]) == []


@pytest.mark.parametrize("word", ["./nope", "/nope", "~/nope", "a/nope", "nope"])
def test_a_path_that_is_mistyped_is_refused(tmp_path: Path, word: str) -> None:
    with pytest.raises(ExperimentError, match=f"--data {word}: no such file"):
        datasets.versions(tmp_path, [word])
