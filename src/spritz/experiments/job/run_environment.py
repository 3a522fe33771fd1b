"""The environment of a run: Python and its packages, variables, driver, modules, machine.

Collected where `spritz run` is called, since the job inherits that environment.
"""

from __future__ import annotations

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


def collect(
    home: Path, directory: Path, environment: Mapping[str, str], command: Sequence[str] = (), *, image: str = ""
) -> dict[str, Any]:
    """The surroundings, secrets masked. What cannot be found out is left out.

    `command`: its interpreter is examined. `image`: the command runs in it, so that the interpreter here is not the
    command's.
    """
    python = None if image else interpreters.of_command(command, directory, environment)
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
    for name in ("uv.lock", "poetry.lock", "pixi.lock", "conda-lock.yml", "requirements.txt", "environment.yml"):
        path = directory / name
        with suppress(OSError):
            collected.setdefault("lock_files", {})[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    for name in ("SINGULARITY_CONTAINER", "APPTAINER_CONTAINER"):
        if environment.get(name):
            collected["container"] = containers.identity(environment[name], home, environment)
    if image:
        collected["container"] = containers.identity(image, home, environment)
    driver = Path("/proc/driver/nvidia/version")
    with suppress(OSError):
        collected["driver"] = driver.read_text(encoding="utf-8").splitlines()[0].strip()
    return collected


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
