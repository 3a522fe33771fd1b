"""The first cause is found among the ranks' logs, and ends are told in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.experiments import failures, record


def write(directory: Path, **logs: str) -> Path:
    (directory / "log").mkdir()
    record.append(directory, "started", 1.0, restart=0)
    for name, text in logs.items():
        (directory / "log" / f"{name.strip('r').replace('_', '-')}.log").write_text(text)
    return directory


def test_running_out_of_gpu_memory_stands_before_the_time_out_that_it_causes(tmp_path: Path) -> None:
    directory = write(
        tmp_path,
        r0_0="[rank0]: Watchdog caught collective operation timeout: WorkNCCL\n",
        r0_1="step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
    )
    said = failures.explain(directory, "FAILED", 1)
    assert said.startswith("it ended with exit status 1; a GPU ran out of memory")
    assert "rank 1: torch.OutOfMemoryError: CUDA out of memory" in said


def test_only_the_newest_life_counts(tmp_path: Path) -> None:
    directory = write(tmp_path, r0_0="CUDA out of memory\n", r1_0="ModuleNotFoundError: No module named 'x'\n")
    assert "a Python module is missing" in failures.explain(directory, "FAILED", 1)


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("TIMEOUT", None, "it reached its time limit"),
        ("FAILED", 137, "it was killed by SIGKILL"),
        ("FAILED", 127, "its command was not found"),
        ("CANCELLED", None, "it was cancelled"),
        ("COMPLETED", 0, ""),
    ],
)
def test_ends_in_words(tmp_path: Path, state: str, code: int | None, words: str) -> None:
    assert failures.explain(write(tmp_path), state, code) == words


def test_an_abort_at_the_exit_is_told_from_an_exception(tmp_path: Path) -> None:
    directory = write(tmp_path, r0_0="process 0 of 2\nterminate called without an active exception\n")
    assert "a thread still ran when the program ended" in failures.explain(directory, "FAILED", 134)
    (directory / "log" / "0-0.log").write_text("ValueError: lr\nterminate called without an active exception\n")
    assert "the program raised an exception\n  rank 0: ValueError: lr" in failures.explain(directory, "FAILED", 134)


@pytest.mark.parametrize(("seconds", "words"), [(20, "20 s"), (3600, "60 min")])
def test_a_guard_says_how_long_the_run_was_idle(tmp_path: Path, seconds: int, words: str) -> None:
    record.append(write(tmp_path), "idle", 2.0, restart=0, action="end", what="gpu", seconds=seconds)
    assert failures.explain(tmp_path, "FAILED", 143) == f"its guard ended it: the GPUs had been idle for {words}"


def test_a_script_that_slurm_could_not_start_is_told_from_a_command_that_failed(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    assert failures.explain(tmp_path, "FAILED", 0).startswith("its script could not begin: can its node write")
