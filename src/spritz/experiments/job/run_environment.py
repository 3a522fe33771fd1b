"""The environment of a run: Python and its packages, variables, driver, modules, machine.

Collected where `spritz run` is called, since the job inherits that environment.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from spritz.experiments import secrets, tracking
from spritz.experiments.code import interpreters
from spritz.experiments.job import containers

#: Names of files that determine what is installed in a project's environment.
_LOCK_FILES = (
    *("uv.lock", "poetry.lock", "pdm.lock", "pixi.lock", "Pipfile.lock", "pylock.toml", "pylock.*.toml"),
    *("requirements*.txt", "conda-lock.yml", "environment.yml", "environment.yaml"),
    *("package-lock.json", "pnpm-lock.yaml", "yarn.lock"),
)


def collect(
    home: Path, directory: Path, environment: Mapping[str, str], command: Sequence[str] = (), *,
    image: str = "", python: str | None = "",
) -> dict[str, Any]:  # fmt: skip
    """The surroundings, secrets masked. What cannot be found out is left out.

    `command`: its interpreter is examined, unless `python` is given. `image`: the command runs in it, so that the
    interpreter here is not the command's.
    """
    python = None if image else python or interpreters.of_command(command, directory, environment)
    host = os.uname()  # the module `platform` starts a process
    collected: dict[str, Any] = {
        "host": host.nodename,
        "system": f"{host.sysname}-{host.release}-{host.machine}",
        **({} if image else {"python": interpreters.examine(home, python, environment) if python else {}}),
        "variables": secrets.masked_environment(_given(environment)),
    }
    if "CONDA_PREFIX" in environment and not image:
        prefix = environment["CONDA_PREFIX"]
        collected["conda"] = {"prefix": prefix, "name": environment.get("CONDA_DEFAULT_ENV", "")}
        collected["conda"]["explicit"] = _explicit(home, Path(prefix))
    if environment.get("LOADEDMODULES"):
        collected["modules"] = environment["LOADEDMODULES"].split(":")
    collected["lock_files"] = _lock_files(directory)
    for name in ("SINGULARITY_CONTAINER", "APPTAINER_CONTAINER"):
        if environment.get(name):
            collected["container"] = containers.identity(environment[name], home, environment)
    if image:
        collected["container"] = containers.identity(image, home, environment)
    driver = Path("/proc/driver/nvidia/version")
    with suppress(OSError):
        collected["driver"] = driver.read_text(encoding="utf-8").splitlines()[0].strip()
    return collected


def _lock_files(directory: Path) -> dict[str, str]:
    """Path below the repository's root, or below the directory if there is none -> SHA-256.

    They are kept apart from the snapshot, which has the tracked ones: a rerun has its code from an earlier snapshot,
    but the environment of today.
    """
    around = [directory, *directory.parents]
    root = next((place for place in around if (place / ".git").exists()), directory)
    digests = {}
    for place in around[: around.index(root) + 1]:
        with suppress(OSError):
            names = sorted(os.listdir(place))
            for name in names:
                if any(fnmatch.fnmatchcase(name, pattern) for pattern in _LOCK_FILES):
                    with suppress(OSError), open(place / name, "rb") as file:
                        path = os.path.relpath(place / name, root)
                        digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


#: Variables that the job of a run sets for itself, except these variables of the user.
_OF_A_RUN = ("PWD", "SLURM_", "SPRITZ_", *tracking.INJECTED)
_OF_THE_USER = frozenset({"SLURM_CONF", "SPRITZ_HOME", "SPRITZ_NO_SERVER", "SPRITZ_RUN_STORE"})


def _given(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables without those of the run that submits this run, as a pipeline's steps submit their successors."""
    inside = "SPRITZ_RUN" in environment
    return {
        name: value
        for name, value in environment.items()
        if not (inside and name.startswith(_OF_A_RUN) and name not in _OF_THE_USER)
    }


def _explicit(home: Path, prefix: Path) -> list[str]:
    """The output of `conda list --explicit --md5`, which `conda create --file` reads; kept until an installation."""
    records = prefix / "conda-meta"
    try:
        stamp = records.stat().st_mtime_ns
    except OSError:
        return []
    kept = home / "environments" / f"{hashlib.sha256(f'conda {records} {stamp}'.encode()).hexdigest()[:20]}.json"
    with suppress(OSError, ValueError):
        known: list[str] = json.loads(kept.read_text(encoding="utf-8"))
        return known
    urls = []
    for path in sorted(records.glob("*.json")):
        with suppress(OSError, ValueError, AttributeError):
            package = json.loads(path.read_text(encoding="utf-8"))
            if url := package.get("url"):
                urls.append(secrets.masked_text(f"{url}#{package['md5']}" if package.get("md5") else str(url)))
    interpreters.keep(kept, urls)
    return urls


def our_python() -> str:
    return sys.executable
