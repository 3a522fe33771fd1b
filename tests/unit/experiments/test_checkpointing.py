"""Checkpoints are whole or not there, and a training that loads one goes on as if nothing had been."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.experiments import checkpointing
from spritz.experiments.checkpointing import Checkpointer
from spritz.experiments.job import resuming


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "SLURM_PROCID", "SPRITZ_CHECKPOINT_DIR", "SPRITZ_SAVED_FILE", "SPRITZ_STOP_SIGNAL"):
        monkeypatch.delenv(name, raising=False)
    kept = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def draws(count: int) -> list[float]:
    return [random.random() for _ in range(count)]


def test_state_and_random_numbers_continue(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path)
    assert checkpoints.load() is None
    random.seed(3)
    draws(5)
    checkpoints.save(5, weight=1.5)
    expected = draws(5)
    random.seed(99)
    assert Checkpointer(tmp_path).load() == {"step": 5, "weight": 1.5}
    assert draws(5) == expected


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path)
    for step in (1, 2):
        path = checkpoints.save(step)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.warns(UserWarning, match="cannot be read"):
        assert checkpoints.load() == {"step": 1}


def test_what_cannot_be_saved_leaves_the_last_checkpoint_and_no_scraps(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path, random_state=False)
    checkpoints.save(1)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(Exception, match="pickle|local object"):
        checkpoints.save(2, bad=lambda: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert checkpoints.load() == {"step": 1}


def test_the_newest_are_kept_and_the_job_finds_the_last(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path, keep=2)
    for step in (9, 10, 11):
        last = checkpoints.save(step)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-0000000010.ckpt", "step-0000000011.ckpt"]
    assert not list(tmp_path.glob("*9.rank-0"))
    assert resuming.latest_checkpoint(tmp_path) == last


def test_what_has_a_state_dict_is_saved_as_that(tmp_path: Path) -> None:
    class Model:
        def state_dict(self) -> dict[str, int]:
            return {"weight": 3}

    checkpoints = Checkpointer(tmp_path)
    checkpoints.save(1, model=Model())
    assert checkpoints.load() == {"step": 1, "model": {"weight": 3}}


def test_only_rank_0_writes_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    Checkpointer(tmp_path).save(1, weight=1)
    assert [path.name for path in tmp_path.iterdir()] == [".step-0000000001.rank-1"]


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGTERM"])
def test_a_signal_asks_to_stop_and_all_ranks_agree(tmp_path: Path, name: str) -> None:
    checkpoints = Checkpointer(tmp_path)
    other = Checkpointer(tmp_path / "other", agree=lambda wish: True)
    assert not checkpoints.should_stop()
    assert other.should_stop()
    checkpoints = Checkpointer(tmp_path)
    os.kill(os.getpid(), getattr(signal, name))
    assert checkpoints.should_stop()


def test_leaving_says_by_status_or_by_file_that_the_state_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpointer(tmp_path)
    with pytest.raises(SystemExit) as left:
        checkpoints.leave()
    assert left.value.code == checkpointing.SAVED == resuming.SAVED
    monkeypatch.setenv("SPRITZ_SAVED_FILE", str(tmp_path / "saved"))
    with pytest.raises(SystemExit) as left:
        checkpoints.leave()
    assert left.value.code == 0
    assert (tmp_path / "saved").exists()


def test_the_installed_module_needs_nothing_of_ours(tmp_path: Path) -> None:
    modules = resuming.install_module(tmp_path)
    assert resuming.install_module(tmp_path) == modules
    program = "import sys, spritz_checkpointing as c; c.Checkpointer('c').save(1); print('spritz' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=tmp_path, env={"PYTHONPATH": str(modules)}, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout == "False\n"


def test_pytorch_state_and_random_numbers_continue(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    checkpoints = Checkpointer(tmp_path)
    model = torch.nn.Linear(2, 1)
    checkpoints.save(1, model=model)
    expected = torch.randn(3)
    state = Checkpointer(tmp_path).load()
    assert state is not None
    assert torch.equal(torch.randn(3), expected)
    assert torch.equal(state["model"]["weight"], model.weight)


LATE = """\
import os, signal, sys
from spritz_checkpointing import Checkpointer

class Late:
    def __del__(self):  # after atexit and after Python has undone signal handlers
        os.kill(os.getpid(), signal.SIGUSR1)
        print("survived", flush=True)

late = Late()
checkpoints = Checkpointer()
if "leave" in sys.argv:
    checkpoints.leave()
"""


@pytest.mark.parametrize(("words", "status"), [(["leave"], 75), ([], 0)])
def test_a_signal_while_python_exits_does_not_change_the_status(tmp_path: Path, words: list[str], status: int) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(resuming.install_module(tmp_path)),
        "SPRITZ_CHECKPOINT_DIR": str(tmp_path / "c"),
    }
    command = [sys.executable, "-c", LATE, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "survived\n"), done.stderr
