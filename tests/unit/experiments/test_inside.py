"""What runs along with the command opens one MLflow run for all lives of a run, samples ranks, and harms nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spritz.experiments import inside
from tests.unit.experiments.mlflow_server import TOKEN, Mlflow, mlflow_server


def directory_of(tmp_path: Path, url: str, name: str = "train-1") -> Path:
    """A run's directory as `spritz run --track` leaves it."""
    directory = tmp_path / name
    (directory / "code").mkdir(parents=True)
    state = tmp_path / "server.json"
    state.write_text(json.dumps({"url": url, "token": TOKEN}))
    known = {"run": name, "state": str(state), "experiment": "a project", "code": str(directory / "code"),
             "tags": {"spritz.run": name, "mlflow.source.git.commit": "c0ffee"}}  # fmt: skip
    (directory / "track.json").write_text(json.dumps(known))
    return directory


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SPRITZ_TRACK_WAIT_SECONDS", "0.1")
    for name in ("MLFLOW_TRACKING_URI", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


def only_run(server: Mlflow) -> str:
    (run_id,) = server.runs
    return run_id


def test_all_lives_of_a_run_share_one_mlflow_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mlflow_server(TOKEN) as server:
        directory = directory_of(tmp_path, server.url)
        first = dict(inside.track(directory))
        run_id = only_run(server)
        assert (first["MLFLOW_RUN_ID"], first["MLFLOW_TRACKING_URI"]) == (run_id, server.url)
        assert (first["MLFLOW_TRACKING_TOKEN"], first["MLFLOW_EXPERIMENT_NAME"]) == (TOKEN, "a project")
        assert server.runs[run_id]["info"]["experiment_id"] == server.experiments["a project"]
        assert server.tags(run_id) == {
            "spritz.run": "train-1", "mlflow.source.git.commit": "c0ffee", "spritz.job": "17",
        }  # fmt: skip
        inside.close(directory, 143)
        assert server.runs[run_id]["info"]["status"] == "KILLED"
        monkeypatch.setenv("SLURM_JOB_ID", "18")
        assert dict(inside.track(directory))["MLFLOW_RUN_ID"] == run_id
        assert only_run(server) == run_id
        assert server.runs[run_id]["info"]["status"] == "RUNNING"
        assert server.tags(run_id)["spritz.job"] == "18"


def test_without_a_server_the_command_logs_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = directory_of(tmp_path, "http://127.0.0.1:9")
    found = dict(inside.track(directory))
    assert found["MLFLOW_TRACKING_URI"] == f"sqlite:///{directory}/mlflow.db"
    assert "MLFLOW_RUN_ID" not in found
    assert "no tracking: http://127.0.0.1:9: " in capsys.readouterr().err


def test_a_wrong_token_is_told_and_costs_the_tracking_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mlflow_server("another") as server:
        assert "MLFLOW_RUN_ID" not in dict(inside.track(directory_of(tmp_path, server.url)))
    assert "401" in capsys.readouterr().err


def test_a_program_that_chooses_its_experiment_gets_tags_and_no_run(tmp_path: Path) -> None:
    with mlflow_server(TOKEN) as server:
        directory = directory_of(tmp_path, server.url)
        (directory / "code" / "train.py").write_text("import mlflow\nmlflow.set_experiment('mine')\n")
        found = dict(inside.track(directory))
        assert "MLFLOW_RUN_ID" not in found
        assert json.loads(found["MLFLOW_RUN_CONTEXT"])["spritz.run"] == "train-1"


def test_a_trial_of_a_sweep_has_a_run_of_its_own(tmp_path: Path) -> None:
    with mlflow_server(TOKEN) as server:
        directory_of(tmp_path, server.url, "sweep-1")
        (tmp_path / "sweep-1.7").mkdir()
        inside.track(tmp_path / "sweep-1.7")
        assert server.tags(only_run(server))["spritz.run"] == "sweep-1.7"
        assert server.runs[only_run(server)]["info"]["run_name"] == "sweep-1.7"


def test_no_failure_reaches_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPRITZ_RUN_DIR", str(tmp_path / "missing"))
    assert [inside.main(words) for words in (["track"], ["close", "0"], ["sample"])] == [0, 0, 0]


@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        ({"SLURM_PROCID": "3"}, ["3"]),
        ({"SLURM_PROCID": "1", "RANK": "9"}, ["9"]),
        ({"SLURM_PROCID": "3", "SLURM_JOB_ID": "18"}, []),
        ({"SLURM_PROCID": "3", "SLURM_NODEID": "1"}, []),
        ({"SLURM_PROCID": "3", "SPRITZ_SAMPLER": "1"}, []),
        ({}, []),
    ],
)
def test_processes_count_for_the_rank_in_their_environment(variables: dict[str, str], ranks: list[str]) -> None:
    job_id = f"17{os.getpid()}"  # another worker of this run may run this test too
    code = "x = bytearray(50_000_000)\nprint(flush=True)\nwhile True: pass"
    busy = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE,
        env={"SLURM_JOB_ID": job_id, "SLURM_NODEID": "0", "SLURM_STEP_ID": "0", **variables},
    )  # fmt: skip
    try:
        assert busy.stdout is not None
        busy.stdout.readline()
        processes = inside.Processes(job_id, "0")
        found = processes.look()
        assert list(found) == ranks
        if ranks:
            assert found[ranks[0]][1] > 50_000_000
            used_at_first = os.times().elapsed
            while processes.look()[ranks[0]][0] <= 0.0:
                assert os.times().elapsed < used_at_first + 60
    finally:
        busy.kill()
        busy.wait()
        if busy.stdout is not None:
            busy.stdout.close()


def test_gpus_are_those_that_the_job_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, GPU-a, 97, 1000, 8000'\necho '1, GPU-b, [N/A], 2000, 8000'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert inside.gpus() == {"0": [97.0, 1000.0, 8000.0], "1": [0.0, 2000.0, 8000.0]}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")
    assert list(inside.gpus()) == ["1"]


def test_the_sampler_of_a_script_that_ended_before_it_began_ends(tmp_path: Path) -> None:
    """On a Slurm that tracks processes by their group it would live for ever."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    environment = {
        **os.environ, "SPRITZ_RUN_DIR": str(tmp_path), "SLURM_JOB_ID": "1", "SLURM_NNODES": "1",
        "SPRITZ_SAMPLE_SECONDS": "0.01", "SPRITZ_SAMPLER": str(gone.pid),
    }  # fmt: skip
    done = subprocess.run([sys.executable, inside.__file__, "sample"], env=environment, timeout=60)
    assert done.returncode == 0
