"""Which Python a command will use, what is installed there, and where else its imports lead.

Asked at submission. What a job's interpreters really were, and what they imported, they write down themselves
(`imports`); `of_run` reads it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from spritz.experiments import imports
from spritz.experiments.code import runners

PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")
#: Of a script: the interpreter's path, or the program that env(1) looks up.
_SHEBANG = re.compile(rb"#!\s*(?:/usr/bin/env\s+)?(\S*python[0-9.]*)")


class Facts(TypedDict, total=False):
    """What commands rely on in what is known of an interpreter; the file may be another user's."""

    python: str
    executable: str
    prefix: str
    packages: list[str]


class _Report(TypedDict):
    id: str
    executable: str
    modules: int


class _Imported(TypedDict):
    files: dict[str, str]


def of_command(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str | None:
    """The interpreter that the command will start, as far as its words show; else `python` on PATH."""
    path = environment.get("PATH")
    word = command[0] if command else "python"
    if in_project := runners.python(command, directory, environment):
        return in_project
    executable = shutil.which(str(directory / word) if "/" in word else word, path=path)
    if executable is not None and PYTHON.fullmatch(executable):
        return _behind(executable, directory, environment)
    if executable is not None:
        with suppress(OSError), open(executable, "rb") as file:
            match = _SHEBANG.match(file.read(300))
            if match and (python := shutil.which(os.fsdecode(match[1]), path=path)):
                return _behind(python, directory, environment)
    default = shutil.which("python", path=path) or shutil.which("python3", path=path)
    return _behind(default, directory, environment) if default else None


def _behind(python: str, directory: Path, environment: Mapping[str, str]) -> str:
    """The interpreter that a script of that name starts, as pyenv's do; which depends on the directory."""
    with suppress(OSError):
        with open(python, "rb") as file:
            if file.read(2) != b"#!":
                return python
        done = runners.answer((python, "-c", "import sys; print(sys.executable)"), directory, environment)
        return done or python
    return python


def ignores_variables(command: Sequence[str]) -> bool:
    """Whether the command is Python with a flag by which `imports` has no effect."""
    if not command or not PYTHON.fullmatch(command[0]):
        return False
    for word in command[1:]:
        if not word.startswith("-") or word in ("-c", "-m"):
            return False
        if not word.startswith("--") and set(word) & set("IES"):
            return True
    return False


def examine(home: Path, python: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The interpreter's version, packages and places (`imports.interpreter`); kept until something is installed."""
    # The environment is resolved, not the interpreter: that of a virtual environment is a link to another one's.
    prefix = os.path.realpath(os.path.dirname(os.path.dirname(os.path.abspath(python))))
    key = imports.stamp(os.path.basename(python), prefix)
    kept = home / "environments" / f"{key}.json"
    with suppress(OSError, ValueError):
        known: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        if "path" in known:
            return known
    program = f"{Path(imports.__file__).read_text(encoding='utf-8')}\nimport json; print(json.dumps(interpreter()))"
    # PYTHONPATH may differ in the next call. The caller reads it itself.
    variables = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, env=variables, cwd="/")
    try:
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"executable": python}
    facts["id"] = key
    keep(kept, facts)
    return facts


def keep(path: Path, value: Any) -> None:
    """Cache a value for the next run; a full disk only costs time."""
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        scratch = path.with_suffix(f".{os.uname().nodename}.{os.getpid()}")
        scratch.write_text(json.dumps(value), encoding="utf-8")
        os.replace(scratch, path)


def versions(facts: Mapping[str, Any]) -> dict[str, str]:
    """Package -> version."""
    return dict(package.split("==", 1) for package in facts.get("packages", ()) if "==" in package)


def path_of(facts: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """Directories outside the installation that the interpreter has in `sys.path`, in its order."""
    # Relative ones are meant from the working directory, which is in the snapshot.
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]
    return list(dict.fromkeys([*paths, *facts.get("path", [])]))


def places(facts: Mapping[str, Any], environment: Mapping[str, str], home: Path) -> list[str]:
    """Directories and files outside the installation from which a command may import, resolved."""
    paths = [*path_of(facts, environment), *facts.get("places", [])]
    real = dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path))
    return [path for path in real if not imports.is_below(path, os.path.realpath(home))]


def of_run(home: Path, directory: Path, command: Sequence[str] = (), expected: str = "") -> dict[str, Any]:
    """The interpreter that ran, as its processes wrote down; {} if none did.

    `expected`: the environment that the command's runner was to use; the runner's own interpreter counts less.
    """
    written: list[_Report] = []
    for path in (directory / "python").glob("*.json"):
        with suppress(OSError, ValueError, RecursionError):
            written.append(msgspec.convert(json.loads(path.read_text(encoding="utf-8")), _Report))
    if not written:
        return {}
    if runners.runner(command) and expected:
        place = os.path.join(os.path.realpath(expected), "bin")
        written = [report for report in written if os.path.dirname(report["executable"]) == place] or written
    chosen = max(written, key=lambda report: report["modules"])
    with suppress(OSError, ValueError, RecursionError):
        name = os.path.basename(f"{chosen['id']}.json")
        known: dict[str, Any] = json.loads((home / "environments" / name).read_text(encoding="utf-8"))
        msgspec.convert(known, Facts)
        return known
    return {"executable": chosen["executable"]}


def imported_from_outside(directory: Path) -> dict[str, str]:
    """Path -> SHA-256 of each file that the run's processes imported and that was not frozen."""
    files: dict[str, str] = {}
    for path in (directory / "imports").glob("*.json"):
        with suppress(OSError, ValueError, RecursionError):
            read = msgspec.convert(json.loads(path.read_text(encoding="utf-8")), _Imported)
            files.update(read["files"])
    return files
