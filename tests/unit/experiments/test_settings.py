"""spritz.yaml and the command line make the options; mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.experiments.commands import rerun
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import settings
from spritz.experiments.job.settings import RunOptions


def write(directory: Path, text: str) -> settings.Settings:
    (directory / "spritz.yaml").write_text(text)
    return settings.read(directory)


def test_the_command_line_goes_over_the_file_and_lists_are_joined(tmp_path: Path) -> None:
    found = write(tmp_path, "run: {gpus: 4, time: 2:00:00, tags: [a], env: {X: 1, Y: 2}, slurm: [--mem=1G]}\n")
    options = settings.merged(found, {"gpus": "2", "time": "", "tags": ("b",), "env": {"X": "3"}, "slurm": ()})
    assert (options.gpus, options.time, options.tags) == ("2", "2:00:00", ("a", "b"))
    assert options.env == {"X": "3", "Y": "2"}
    assert settings.sbatch_options(options) == ["--gpus=2", "--time=2:00:00", "--mem=1G"]


def test_the_nearest_file_up_to_the_repositorys_root_counts(tmp_path: Path) -> None:
    (tmp_path / "spritz.yaml").write_text("run: {qos: outside}\n")
    inner = tmp_path / "repository" / "src"
    inner.mkdir(parents=True)
    assert settings.read(inner).run == {"qos": "outside"}
    (tmp_path / "repository" / ".git").mkdir()
    assert settings.read(inner).run == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("run: {gpu: 4}\n", r"unknown key 'gpu' \(did you mean gpus\?\)"),
        ("rnu: {}\n", r"unknown key 'rnu' \(did you mean run\?\)"),
        ("run: [1]\n", "run: a mapping is expected"),
        ("run: {nodes: [1]}\n", "run: nodes: a single value is expected"),
        ("snapshot: {max_file: many}\n", "snapshot: max_file: 'many' is not a size"),
        ("run: {a: : b}\n", "spritz.yaml: while parsing a flow node"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ExperimentError, match=complaint):
        write(tmp_path, text)


def test_sizes_of_snapshots() -> None:
    assert settings.parse_bytes("1.5G", "x") == 3 << 29
    assert settings.parse_bytes("200MB", "x") == 200 << 20


@pytest.mark.parametrize(
    ("given", "slurm"),
    [("90m", "90"), ("2h", "120"), ("3d", "4320"), ("1-00:00", "1-00:00"), ("30", "30"), ("61s", "2")],
)
def test_times_with_a_unit(tmp_path: Path, given: str, slurm: str) -> None:
    assert settings.merged(settings.Settings(), {"time": given}).time == slurm
    assert settings.merged(write(tmp_path, f'run: {{time: "{given}"}}\n'), {}).time == slurm


def test_what_is_no_time_is_named() -> None:
    with pytest.raises(ExperimentError, match="--time=soon: Invalid time specification"):
        settings.merged(settings.Settings(), {"time": "soon"})


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (RunOptions(gpus="4", nodes="2"), "2"),
        (RunOptions(gpus="h100:8"), "8"),
        (RunOptions(gpus_per_node="a100:4", nodes="3"), "4"),
        (RunOptions(), ""),
    ],
)
def test_gpus_of_a_node(options: RunOptions, count: str) -> None:
    assert settings.per_node_gpus(options) == count


def test_gpus_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(ExperimentError, match="cannot be divided over 2 nodes"):
        settings.per_node_gpus(RunOptions(gpus="3", nodes="2"))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "train.py", "--lr", "1"), "train"),
        (("python3", "-m", "pkg.train"), "train"),
        (("python", "-W", "ignore", "train.py"), "train"),
        (("python3.12", "-X", "dev", "src/train.py", "other.py"), "train"),
        (("torchrun", "--nproc_per_node", "2", "train.py"), "train"),
        (("torchrun", "--nproc_per_node", "2", "-m", "pkg.train"), "train"),
        (("python", "-m", "torch.distributed.run", "--nnodes", "1", "train.py"), "train"),
        (("accelerate", "launch", "--mixed_precision", "fp16", "train.py"), "train"),
        (("uv", "run", "--extra", "gpu", "python", "train.py"), "train"),
        (("env", "A=1", "./tool"), "tool"),
        (("/opt/v1.2/tool", "--config", "x.py"), "tool"),
        (("uv", "run", "tool"), "tool"),
        (("python", "übung.py"), "übung"),
        (("./run.sh",), "run"),
        (("nvidia-smi",), "nvidia-smi"),
        (("bash", "-c", "sleep 3"), "bash"),
    ],
)
def test_names_from_commands(command: tuple[str, ...], name: str) -> None:
    assert settings.default_name(command) == name


@pytest.mark.parametrize(
    ("command", "change", "result"),
    [
        (["p", "--lr", "1"], "lr=2", ["p", "--lr", "2"]),
        (["p", "--lr=1"], "lr=2", ["p", "--lr=2"]),
        (["p", "--batch-size=1"], "batch_size=2", ["p", "--batch-size=2"]),
        (["p", "model.depth=3"], "model.depth=4", ["p", "model.depth=4"]),
        (["p", "--fast", "--x"], "new=5", ["p", "--fast", "--x", "--new=5"]),
    ],
)
def test_a_changed_command(command: list[str], change: str, result: list[str]) -> None:
    assert rerun.changed(command, [change]) == result


def test_a_change_without_a_value_is_refused() -> None:
    with pytest.raises(ExperimentError, match="NAME=VALUE"):
        rerun.changed(["p"], ["lr"])
