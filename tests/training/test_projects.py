"""Ten projects as one finds them, each with its own way of writing data, checkpoints and logs, right at the first try.

On a cluster of ours, and on a real Slurm where its packages are. `make experiments` installs what they import
(project-requirements.txt); `projects/` has them, in the shape of what their frameworks' guides show.

charmodel        python train.py config/tiny.py     data by a script, ignored by git; a checkpoint in out*/
lightning_fit    python train.py                    lightning_logs/ with TensorBoard's files and checkpoints
ddp              torchrun --nproc_per_node 2 …      several processes, of which one fails
sklearn_autolog  python train.py                    MLflow's autolog into ./mlruns, model.pkl
hydra_app        python train.py model=large        groups of settings, outputs/DATE/TIME as working directory
optuna_study     python search.py                   a study in optuna.db that goes on
uv_package       uv run train.py                    a package below src/ that uv installs as editable
makefile         make train LR=4                    a rule that uses .venv/bin/python
accelerate_loop  accelerate launch train.py         checkpoints by save_state
module           python -m trainer.train 7          a package, a log file
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.e2e.experiments_lab import Lab, cluster, git, lab

__all__ = ["cluster", "lab"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("training")]

#: All that a node has: a share by CPUs is too little for PyTorch, and Slurm counts shared pages once a process.
_MEMORY = ("--mem", "0")
_PROJECTS = Path(__file__).with_name("projects")


@pytest.fixture
def programs() -> Path:
    """The directory of programs of the environment with the frameworks."""
    python = os.environ.get("SPRITZ_TEST_PROJECTS")
    if python is None:
        pytest.skip("SPRITZ_TEST_PROJECTS names a Python with project-requirements.txt: `make experiments`")
    return Path(python).parent


@pytest.fixture(autouse=True)
def _patience(lab: Lab) -> None:
    lab.patience_seconds = 300


def take(lab: Lab, name: str) -> None:
    """The project of that name in place of the lab's."""
    shutil.rmtree(lab.project)
    shutil.copytree(_PROJECTS / name, lab.project)
    git(lab.project, "init", "-q", "-b", "main")
    git(lab.project, "add", "-A")
    git(lab.project, "commit", "-q", "-m", "one")


def files(lab: Lab, run: str) -> list[str]:
    return [row["path"] for row in json.loads(lab("files", run, "--json"))["files"]]


def messages(lab: Lab, *words: str, status: int = 0) -> tuple[str, str]:
    """Output and messages of `spritz WORDS`."""
    process = lab.start(*words)
    out, err = process.communicate(timeout=lab.patience_seconds)
    assert process.returncode == status, out + err
    return out, err


def test_data_that_git_ignores_is_named_linked_and_the_checkpoint_resumed(lab: Lab, programs: Path) -> None:
    take(lab, "charmodel")
    python = str(programs / "python")
    subprocess.run([python, "data/chars/prepare.py"], cwd=lab.project, check=True, timeout=100)
    _, err = messages(lab, "run", *_MEMORY, "--", python, "train.py", "config/tiny.py", status=1)
    assert "--link data/chars/train.bin" in err
    out, err = messages(lab, "run", *_MEMORY, "--link", "data", "--", python, "train.py", "config/tiny.py")
    assert out.startswith("iter 20: loss ")
    assert "out-tiny/ckpt.pt" in err
    assert files(lab, "train-2") == ["out-tiny/ckpt.pt"]
    lab("files", "train-2", "--get", str(lab.directory / "got"))
    assert (lab.directory / "got" / "out-tiny" / "ckpt.pt").stat().st_size > 1000
    (lab.project / "out-tiny").mkdir()
    shutil.copy(lab.directory / "got" / "out-tiny" / "ckpt.pt", lab.project / "out-tiny")
    resumed = lab("run", *_MEMORY, "--link", "data", "--link", "out-tiny", "--", python, "train.py", "config/tiny.py",
                  "--init_from=resume")  # fmt: skip
    assert resumed.startswith("iter 40: loss ")


def test_lightnings_logs_are_metrics(lab: Lab, programs: Path) -> None:
    take(lab, "lightning_fit")
    lab("run", *_MEMORY, "--", str(programs / "python"), "train.py")
    (run,) = json.loads(lab("runs", "--json"))["runs"]
    assert {"loss", "epoch"} <= run["metrics"].keys()
    assert any(path.endswith(".ckpt") for path in files(lab, "train-1"))


def test_torchruns_first_failed_rank_is_the_cause(lab: Lab, programs: Path) -> None:
    take(lab, "ddp")
    torchrun = str(programs / "torchrun")
    assert lab("run", *_MEMORY, "--", torchrun, "--nproc_per_node", "2", "train.py").endswith("sum 2\n")
    assert files(lab, "train-1") == ["model.pt"]
    _, err = messages(lab, "run", *_MEMORY, "--", torchrun, "--nproc_per_node", "2", "train.py", "--fail", status=1)
    assert "ValueError: the last one fails" in err


def test_mlflows_files_and_the_model_are_the_runs(lab: Lab, programs: Path) -> None:
    take(lab, "sklearn_autolog")
    assert "accuracy 0.97" in lab("run", *_MEMORY, "--", str(programs / "python"), "train.py")
    written = files(lab, "train-1")
    assert "model.pkl" in written
    assert any(path.startswith(("mlruns/", "mlflow.db")) for path in written)


def test_hydra_writes_below_the_run_and_reads_its_groups(lab: Lab, programs: Path) -> None:
    take(lab, "hydra_app")
    assert "width 9 lr 0.1" in lab("run", *_MEMORY, "--", str(programs / "python"), "train.py", "model=large")
    (lab.project / "conf" / "model" / "large.yaml").write_text("width: 1\n")
    assert "width 9 lr 0.3" in lab("rerun", "train-1", "--set", "lr=0.3")
    assert any(path.startswith("outputs/") and path.endswith("result.txt") for path in files(lab, "train-2"))


def test_a_study_goes_on_where_its_database_is_an_output(lab: Lab, programs: Path) -> None:
    take(lab, "optuna_study")
    python = str(programs / "python")
    assert lab("run", *_MEMORY, "--", python, "search.py") == "trials 3\n"
    assert files(lab, "search-1") == ["optuna.db"]
    (lab.project / "spritz.yaml").write_text("run: {outputs: [optuna.db]}\n")
    assert lab("run", *_MEMORY, "--", python, "search.py") == "trials 3\n"
    assert lab("run", *_MEMORY, "--", python, "search.py") == "trials 6\n"
    assert (lab.project / "optuna.db").exists()


def test_uv_runs_the_frozen_package(lab: Lab, programs: Path) -> None:
    take(lab, "uv_package")
    uv = str(programs / "uv")
    subprocess.run([uv, "sync", "-q", "--python", str(programs / "python")], cwd=lab.project, check=True, timeout=200)
    out, _ = messages(lab, "run", *_MEMORY, "--", uv, "run", "train.py")
    assert out == "factor 2\n"
    (lab.project / "src" / "scaling" / "__init__.py").write_text("FACTOR = 3\n")
    assert lab("rerun", "train-1") == "factor 2\n"
    assert lab("run", *_MEMORY, "--", uv, "run", "train.py") == "factor 3\n"


def test_a_makefiles_rule_uses_the_projects_environment(lab: Lab) -> None:
    take(lab, "makefile")
    venv.create(lab.project / ".venv", symlinks=True)
    assert lab("run", *_MEMORY, "--", "make", "train", "LR=4").endswith("loss 0.25\n")
    assert files(lab, "make-1") == ["results/loss.txt"]


def test_accelerates_states_are_files_of_the_run(lab: Lab, programs: Path) -> None:
    take(lab, "accelerate_loop")
    launch = (str(programs / "accelerate"), "launch", "--cpu", "--num_processes", "1")
    assert "steps 4" in lab("run", *_MEMORY, "--", *launch, "train.py", "--steps", "4")
    steps = {path.split("/")[1] for path in files(lab, "train-1") if path.startswith("checkpoints/")}
    assert steps == {"step_2", "step_4"}


def test_a_module_of_a_package_and_its_log_file(lab: Lab, programs: Path) -> None:
    take(lab, "module")
    python = str(programs / "python")
    assert lab("run", *_MEMORY, "--", python, "-m", "trainer.train", "7") == "sum 42\n"
    (lab.project / "trainer" / "data.py").write_text("NUMBERS = (0,)\n")
    assert lab("rerun", "train-1") == "sum 42\n"
    assert lab("files", "train-1", "train.log", "--get", str(lab.directory / "got"))
    assert "sum 6" in (lab.directory / "got" / "train.log").read_text()
