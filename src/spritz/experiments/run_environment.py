"""The environment of a run: Python and its packages, variables, driver, modules, machine.

Collected where `spritz run` is called, since the job inherits that environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from spritz.experiments import containers, secrets, tracking

#: prints the packages of another interpreter without starting pip: 60 ms for 300 packages
_LIST = """
import importlib.metadata as m, json, sys
found = sorted({f"{d.metadata['Name']}=={d.version}" for d in m.distributions() if d.metadata['Name']}, key=str.lower)
print(json.dumps({"python": sys.version.split()[0], "executable": sys.executable, "packages": found}))
"""


def collect(home: Path, directory: Path, environment: Mapping[str, str], *, image: str = "") -> dict[str, Any]:
    """The surroundings, secrets masked. What cannot be found out is left out.

    `image`: the command runs in it, so that the interpreter here is not the command's.
    """
    host = os.uname()  # the module `platform` starts a process
    collected: dict[str, Any] = {
        "host": host.nodename,
        "system": f"{host.sysname}-{host.release}-{host.machine}",
        **({} if image else {"python": _python(home, environment)}),
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


def _python(home: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """The interpreter that `python` is in the environment, and its packages; kept until its directory changes."""
    path = shutil.which("python", path=environment.get("PATH")) or shutil.which("python3", path=environment.get("PATH"))
    if path is None:
        return {}
    prefix = Path(path).parent.parent
    stamps = [str(path)]
    for place in (prefix, *prefix.glob("lib/python3*/site-packages")):
        with suppress(OSError):
            stamps.append(f"{place}:{place.stat().st_mtime_ns}")
    key = hashlib.sha256("\n".join(stamps).encode()).hexdigest()[:20]
    kept = home / "environments" / f"{key}.json"
    with suppress(OSError, ValueError):
        known: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return known
    done = subprocess.run([path, "-c", _LIST], capture_output=True, text=True, env=dict(environment))
    try:
        interpreter: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"executable": path}
    interpreter["id"] = key
    _keep(kept, interpreter)
    return interpreter


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
    _keep(kept, urls)
    return urls


def _keep(path: Path, value: Any) -> None:
    """Cache a value for the next run; a full disk only costs time."""
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(value), encoding="utf-8")
        os.replace(scratch, path)


def our_python() -> str:
    return sys.executable
