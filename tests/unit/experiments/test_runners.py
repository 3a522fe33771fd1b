"""The environment that `uv run` and its like use for a project, here and from a run's checkout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.experiments.code import interpreters, runners


def environment_at(place: Path) -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").touch(mode=0o755)
    return place


def program(place: Path, name: str, text: str) -> str:
    """A shell script; the PATH on which it is first."""
    place.mkdir(exist_ok=True)
    (place / name).write_text(f"#!/bin/sh\n{text}\n")
    (place / name).chmod(0o755)
    return f"{place}:{os.environ['PATH']}"


def test_poetry_is_asked_for_an_environment_that_lies_elsewhere(tmp_path: Path) -> None:
    """It names environments by their projects' paths, so that it would make another one for a run's checkout."""
    elsewhere = environment_at(tmp_path / "cache" / "p-abc-py3")
    path = program(tmp_path / "bin", "poetry", f'[ "$*" = "env info --path" ] && echo {elsewhere}')
    project = tmp_path / "project"
    project.mkdir()
    command, variables = ("poetry", "run", "python"), {"PATH": path}
    assert runners.python(command, project, variables) == f"{elsewhere}/bin/python"
    assert runners.variables(command, project, variables) == {"VIRTUAL_ENV": str(elsewhere)}
    active = {**variables, "VIRTUAL_ENV": str(environment_at(tmp_path / "active"))}
    assert runners.python(command, project, active) == f"{tmp_path}/active/bin/python"
    assert runners.variables(command, project, active) == {}, "the job has the user's variable"
    environment_at(project / ".venv")
    assert runners.python(command, project, variables) == f"{project}/.venv/bin/python"
    assert runners.variables(command, project, variables) == {}, "it is linked"


def test_a_poetry_that_fails_chooses_nothing(tmp_path: Path) -> None:
    path = program(tmp_path / "bin", "poetry", "exit 1")
    command = ("poetry", "run", "python")
    assert runners.python(command, tmp_path, {"PATH": path}) == ""
    assert runners.variables(command, tmp_path, {"PATH": path}) == {}


def test_pdm_keeps_its_choice_in_a_file_that_git_ignores(tmp_path: Path) -> None:
    chosen = environment_at(tmp_path / "venvs" / "p")
    (tmp_path / "sub").mkdir()
    (tmp_path / ".pdm-python").write_text(f"{chosen}/bin/python\n")
    command = ("pdm", "run", "train.py")
    assert runners.python(command, tmp_path / "sub", {}) == f"{chosen}/bin/python"
    assert runners.variables(command, tmp_path / "sub", {}) == {"PDM_PYTHON": f"{chosen}/bin/python"}
    assert runners.variables(command, tmp_path / "sub", {"PDM_PYTHON": "/x/bin/python"}) == {}


def test_uv_installs_nothing_into_an_environment_that_a_variable_names(tmp_path: Path) -> None:
    elsewhere = environment_at(tmp_path / "shared")
    variables = {"UV_PROJECT_ENVIRONMENT": str(elsewhere)}
    assert runners.python(("/opt/bin/uv", "run", "x"), tmp_path, variables) == f"{elsewhere}/bin/python"
    assert runners.variables(("uv", "run", "x"), tmp_path, variables) == {
        "UV_PROJECT_ENVIRONMENT": str(elsewhere), "UV_NO_SYNC": "1",
    }  # fmt: skip
    assert runners.variables(("uv", "run", "x"), tmp_path, {}) == {}
    assert runners.variables(("uv", "pip", "list"), tmp_path, variables) == {}


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("uv run x", ".venv"),
        ("pixi run x", ".pixi/envs/default"),
        ("pixi run -e cuda x", ".pixi/envs/cuda"),
        ("conda run -p ./env x", "env"),
        ("conda run -n torch x", "conda/envs/torch"),
        ("mamba run --name=torch x", "conda/envs/torch"),
    ],
)
def test_where_the_environments_of_others_are(tmp_path: Path, command: str, place: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    environment_at(tmp_path / place)
    directory = tmp_path if "-p" in command else tmp_path / "sub"
    python = runners.python(command.split(), directory, {"CONDA_EXE": f"{tmp_path}/conda/bin/conda", "PATH": ""})
    assert os.path.normpath(python) == f"{tmp_path}/{place}/bin/python"
    assert runners.python([command.split()[0], "list"], directory, {"PATH": ""}) == ""


def test_an_environment_above_the_repository_is_not_the_projects(tmp_path: Path) -> None:
    environment_at(tmp_path / ".venv")
    (tmp_path / "project" / ".git").mkdir(parents=True)
    assert runners.python(("uv", "run", "x"), tmp_path / "project", {}) == ""


def test_a_script_in_place_of_an_interpreter_is_asked_in_the_project(tmp_path: Path) -> None:
    """As those of pyenv, whose choice depends on the directory."""
    path = program(tmp_path / "shims", "python", 'echo "$PWD/chosen/python"')
    assert interpreters.of_command(["python", "t.py"], tmp_path, {"PATH": path}) == f"{tmp_path}/chosen/python"
    path = program(tmp_path / "shims", "python", "exit 1")
    assert interpreters.of_command(["python"], tmp_path / "shims", {"PATH": path}) == f"{tmp_path}/shims/python"
