"""The batch script is a shell script whatever words are in the command, and holds no secret."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from spritz.experiments.code import outputs
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import script
from spritz.experiments.job.settings import RunOptions


def job(template: str, command: tuple[str, ...], **options: object) -> script.Job:
    return script.Job(
        name="r-1",
        directory=Path("/home/o'neil/runs/r-1"),
        options=RunOptions(template=template, **options),  # type: ignore[arg-type]  # by name
        command=command,
        hidden={1: "secret"},
        tree="0123",
        repository=Path("/home/o'neil/snapshots.git"),
        work_directory="a dir",
        inside=Path("/home/o'neil/inside/0.py"),
        event_files=Path("/home/o'neil/inside/events-0.py"),
        data_states=Path("/home/o'neil/inside/data-0.py"),
        tracked=True,
        mark="0123456789abcdef" * 4,
    )


@pytest.mark.parametrize("template", script.TEMPLATES)
def test_every_template_is_a_shell_script(template: str) -> None:
    text = script.text(job(template, ("python", "secret", "it's", '$HOME `x` "y"', "\n"), gpus="2"))
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "secret" not in text.lower().replace("spritz_argument", "")
    assert '"$SPRITZ_ARGUMENT_1"' in text


def test_values_with_blanks_are_one_word_for_sbatch() -> None:
    text = script.text(job("plain", ("true", "x"), constraint="a&b", slurm=("--comment=two words",)))
    assert '#SBATCH --comment="two words"\n' in text
    assert "#SBATCH --constraint=a&b\n" in text


def test_a_directory_without_files_in_the_snapshot_is_made(tmp_path: Path) -> None:
    """The user was in a directory whose files git ignores, such as outputs/."""
    lines = script._preparation(replace(job("plain", ("true", "x")), directory=tmp_path / "r-1"))
    (tmp_path / "r-1" / "code").mkdir(parents=True)
    (tmp_path / "r-1" / "code" / ".git-snapshot-done").touch()
    done = subprocess.run(["bash", "-c", f"finish() {{ exit $1; }}\n{lines}\npwd"], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == [f"{tmp_path}/r-1/code/a dir"], done.stderr


def test_an_unknown_template_is_refused_with_the_nearest() -> None:
    with pytest.raises(ExperimentError, match=r"no such template \(did you mean torchrun\?\)"):
        script.text(job("torchrn", ("true", "x")))


@pytest.mark.parametrize("template", script.TEMPLATES)
def test_the_script_of_a_sweep_has_a_variable_in_each_parameters_place(template: str, tmp_path: Path) -> None:
    swept = script.Trials(
        sweep=Path("/home/o'neil/sweeps/r-1"), shared=Path("/home/o'neil/sweeps/r-1"), version=1,
        variables={"lr": "SPRITZ_PARAM_lr"}, python="/a b/python",
        asks=True, watched=True, retries=2, size=3,
    )  # fmt: skip
    made = replace(job(template, ("python", "secret", "--lr={lr}", "{other} $x"), gpus="2"), trials=swept)
    text = script.text(made)
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "--lr=\"$SPRITZ_PARAM_lr\" '{other}'' $x'" in text
    assert '#SBATCH --output="/home/o\'neil/runs/r-1.%a/log/job.log"\n' in text


def test_launchers_start_programs_of_python_and_others_on_a_node() -> None:
    variables = {
        "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_JOB_ID": "7", "MASTER_ADDR": "n1", "MASTER_PORT": "20007",
    }  # fmt: skip
    for template in script.LAUNCHERS:
        words = script.launcher_words(template, ["python3", "train.py", "--lr"], "4", variables)
        assert words[-2:] == ["train.py", "--lr"]
        assert not any("no-python" in word or "no_python" in word for word in words)
        words = script.launcher_words(template, ["bash", "-c", "x"], "4", variables)
        assert words[-3:] == ["bash", "-c", "x"]
        assert {"--no-python", "--no_python"} & set(words)
        words = script.launcher_words(template, ["/opt/env/bin/python3.12", "-u", "-m", "pkg.train"], "4", variables)
        assert words[:3] == ["/opt/env/bin/python3.12", "-u", "-m"], "the launcher of the program's own environment"
        assert words[-2:] == ["-m", "pkg.train"]
    assert "--num_processes=8" in script.launcher_words("accelerate", ["a.py"], "4", variables)


def test_a_container_sees_what_links_lead_to_and_may_only_read_data() -> None:
    linked = replace(
        job("plain", ("python", "x.py"), container_image="/i.sqsh"),
        linked=("/p/cache dir",),
        data=("/p/data",),
        outputs=(outputs.Output("out", "/p/out", True), outputs.Output("study.db", "/p/study.db", False)),
    )
    text = script.text(linked)
    for mount in ("'/p/cache dir':'/p/cache dir'", "/p/out:/p/out", "/p:/p", "/p/data:/p/data:ro"):
        assert f",{mount}," in text.replace(" --container-workdir", ",")
