"""Programs that run a command in the environment of the project around them (`uv run`), and which one that is.

A run's checkout is another directory than the working tree. An environment in the project is linked there (`linked`).
Others are found by the project's path (poetry) or by a file that git ignores (pdm); variables name them in the job.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_RUNNERS = frozenset({"uv", "poetry", "pdm", "pixi", "hatch", "conda", "mamba", "micromamba"})
#: Of these, an environment can be chosen by a variable.
_BY_VARIABLE = frozenset({"uv", "poetry", "pdm"})
#: Seconds; poetry needs one.
_PATIENCE_SECONDS = 30.0


def runner(command: Sequence[str]) -> str:
    """The name of the program, if the command is `PROGRAM run …`; else ""."""
    name = os.path.basename(command[0]) if command else ""
    return name if name in _RUNNERS and tuple(command[1:2]) == ("run",) else ""


def python(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    """The interpreter of the project's environment; "" if the command has no runner, or that cannot be found out."""
    name = runner(command)
    prefix = {
        "uv": _of_uv, "poetry": _of_poetry, "pdm": _of_pdm, "pixi": _of_pixi,
        "conda": _of_conda, "mamba": _of_conda, "micromamba": _of_conda,
    }.get(name, _none)(command, directory, environment)  # fmt: skip
    place = os.path.join(prefix, "bin", "python")
    return place if prefix and os.path.exists(place) else ""


def variables(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables by which the runner finds the working tree's environment from the checkout; none if it needs none."""
    name = runner(command)
    if name == "uv" and environment.get("UV_PROJECT_ENVIRONMENT"):
        # It must not install the snapshot into an environment that outlives the run.
        return chosen(name, _of_uv(command, directory, environment))
    if name == "poetry" and not environment.get("VIRTUAL_ENV") and not _in_project(directory):
        return chosen(name, _of_poetry(command, directory, environment))
    if name == "pdm" and not environment.get("PDM_PYTHON"):
        return chosen(name, _of_pdm(command, directory, environment))
    return {}


def chosen(name: str, prefix: str) -> dict[str, str]:
    """Variables by which the runner uses that environment; none if it cannot be chosen."""
    if not prefix or name not in _BY_VARIABLE:
        return {}
    if name == "uv":
        return {"UV_PROJECT_ENVIRONMENT": prefix, "UV_NO_SYNC": "1"}
    if name == "pdm":
        return {"PDM_PYTHON": os.path.join(prefix, "bin", "python")}
    return {"VIRTUAL_ENV": prefix}


def answer(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    """What a program prints, without the white space around it; "" if it fails."""
    return _answer(tuple(command), directory, frozenset(environment.items()))


@functools.cache
def _answer(command: tuple[str, ...], directory: Path, environment: frozenset[tuple[str, str]]) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command, cwd=directory, env=dict(environment), capture_output=True, text=True, stdin=subprocess.DEVNULL,
            timeout=_PATIENCE_SECONDS,
        )  # fmt: skip
        return done.stdout.strip() if not done.returncode else ""
    return ""


def _around(directory: Path) -> Iterator[Path]:
    """The directory and its parents, up to the repository's root."""
    for place in (directory, *directory.parents):
        yield place
        if (place / ".git").exists():
            return


def _in_project(directory: Path) -> str:
    return next((str(place / ".venv") for place in _around(directory) if (place / ".venv" / "bin").is_dir()), "")


def _none(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    return ""


def _of_uv(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    if configured := environment.get("UV_PROJECT_ENVIRONMENT"):
        root = next((place for place in _around(directory) if (place / "pyproject.toml").exists()), directory)
        return os.path.join(root, configured)
    return _in_project(directory)


def _of_poetry(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    # Source: poetry's EnvManager.get: an active environment comes first, then the project's.
    if prefix := environment.get("VIRTUAL_ENV") or _in_project(directory):
        return prefix
    program = shutil.which(command[0], path=environment.get("PATH"))
    return answer((program, "env", "info", "--path"), directory, environment) if program else ""


def _of_pdm(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    python = environment.get("PDM_PYTHON", "")
    for place in _around(directory):
        with suppress(OSError):
            python = python or (place / ".pdm-python").read_text(encoding="utf-8").strip()
    return os.path.dirname(os.path.dirname(python)) or _in_project(directory)


def _of_pixi(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    name = _option(command, "-e", "--environment") or environment.get("PIXI_ENVIRONMENT_NAME") or "default"
    places = (place / ".pixi" / "envs" / name for place in _around(directory))
    return next((str(place) for place in places if place.is_dir()), "")


def _of_conda(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    if path := _option(command, "-p", "--prefix"):
        return os.path.join(directory, path)
    name = _option(command, "-n", "--name")
    if not name:
        return environment.get("CONDA_PREFIX", "")
    program = environment.get("CONDA_EXE") or shutil.which(command[0], path=environment.get("PATH")) or ""
    installation = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    if name == "base":
        return environment.get("MAMBA_ROOT_PREFIX") or installation
    places = [
        *environment.get("CONDA_ENVS_PATH", "").split(os.pathsep),
        os.path.join(environment.get("MAMBA_ROOT_PREFIX") or installation, "envs"),
        os.path.expanduser("~/.conda/envs"),
    ]
    return next(
        (os.path.join(place, name) for place in places if place and os.path.isdir(os.path.join(place, name))), ""
    )


def _option(command: Sequence[str], *options: str) -> str:
    """The value of an option of the runner, which stands before the program's words."""
    for place, word in enumerate(command[2:], 2):
        name, equals, text = word.partition("=")
        if name in options:
            return text if equals else "".join(command[place + 1 : place + 2])
    return ""
