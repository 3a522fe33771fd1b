"""The state of data that a run reads is recorded, and a change is noticed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spritz.experiments.code import data_states, datasets
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import script
from spritz.experiments.job.settings import RunOptions
from spritz.experiments.records import record
from spritz.experiments.records.record import Run


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
    monkeypatch.setattr(data_states, "_READ_BYTES_MAX", 1)
    (tmp_path / "x.bin").write_bytes(b"12")
    before = version(tmp_path, "x.bin")
    assert before.startswith("stat:")
    os.utime(tmp_path / "x.bin", (1, 1))
    assert version(tmp_path, "x.bin") != before


def test_of_very_many_files_the_first_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_states, "_FILES_MAX", 2)
    for name in "abc":
        (tmp_path / name).write_text(name)
    before = version(tmp_path, ".")
    assert before.startswith("partial:")
    (tmp_path / "a").write_text("other")
    assert version(tmp_path, ".") != before


def test_links_to_directories_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "store" / "train").mkdir(parents=True)
    (tmp_path / "store" / "train" / "loop").symlink_to("..")
    (tmp_path / "store" / "train" / "x").write_text("1")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train").symlink_to("../store/train")
    before = version(tmp_path, "data")
    (tmp_path / "store" / "train" / "x").write_text("2")
    assert version(tmp_path, "data") != before


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


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("changes", [False, True])
def test_data_that_is_another_at_the_end_of_the_job_is_said_by_its_record(
    tmp_path: Path, *, shared: bool, changes: bool
) -> None:
    project, directory = tmp_path / "a project", tmp_path / "r-1"
    for folder in (project, directory):
        folder.mkdir()
    (project / "x y").write_text("1")
    words = ["x y", "imagenet@2"]
    values: dict[str, Any] = {
        "data": datasets.versions(project, words),
        "code": {"root": str(project), "directory": ".", "tree": ""},
    }
    record.write_json(tmp_path / "shared.json", values)
    run = Run(name="r-1", user="me", created_at=1.0, command=["x"], **values)
    run.shared = str(tmp_path / "shared.json") if shared else ""
    record.write(directory, run)
    job = script.Job(
        name="r-1", directory=directory, options=RunOptions(), command=("true",), hidden={}, tree="",
        repository=tmp_path, work_directory=str(project), inside=tmp_path / "0", event_files=tmp_path / "1",
        data_states=Path(data_states.__file__), data=datasets.paths(project, words), tracked=False, mark="0" * 64,
    )  # fmt: skip
    if changes:
        (project / "x y").write_text("2")
    lines = f"{script._identity(job)}{script._functions(job)}finish 3"
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    subprocess.run(["bash", "-c", lines], cwd="/", env=environment, check=False)
    assert record.events(directory)[-1]["status"] == 3
    (now, _) = datasets.versions(project, words)
    (before, _) = values["data"]
    end = f" ({now.rpartition('@')[2]} at its end)" if changes else ""
    assert record.data_of(directory, record.read(directory)) == [before + end, "imagenet@2"]
