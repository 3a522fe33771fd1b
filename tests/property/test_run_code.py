"""What happens to the code between submission and start never changes what a run computes.

A project with a package below `src/`, a generated module that git ignores, another repository and an installed package
is submitted by `spritz run`; then users edit, commit, switch, clean, collect garbage, move directories and install;
then the job's script runs, with stand-ins for Slurm's commands. The answer must be that of the moment of submission.
What no snapshot has, an upgrade of an installed package, may change it: then the run's record says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.experiments.test_snapshot import git

from spritz.experiments.records import record

_MAIN = """\
import commonlib, helper, installed, mylib
from mylib import generated
print(7 + helper.V + mylib.V + generated.V + commonlib.V, installed.V)
"""
_FILES = ("project/main.py", "project/helper.py", "project/src/mylib/__init__.py",
          "project/src/mylib/generated.py", "common/commonlib.py")  # fmt: skip
_STUBS = {
    "sbatch": "echo 7",
    "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "squeue": "",
    "sacct": "",
    "scontrol": 'case "$*" in *hostnames*) echo n1;; esac',
}


@dataclass
class Place:
    """A user's directory with repositories, an environment and a home for runs."""

    base: Path

    @property
    def python(self) -> Path:
        return self.base / "env" / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return next((self.base / "env" / "lib").glob("python3*/site-packages"))

    def set_up(self) -> None:
        for name, number in zip(_FILES, (0, 10, 100, 1000, 10000), strict=True):
            path = self.base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"V = {number}\n" if number else _MAIN)
        (self.base / "project" / ".gitignore").write_text("generated.py\n")
        for repository in ("project", "common"):
            git(self.base / repository, "init", "-q", "-b", "main")
            git(self.base / repository, "add", "-A")
            git(self.base / repository, "commit", "-q", "-m", "one")
        venv.create(self.base / "env", symlinks=True)
        self.install(1)
        self.editable(self.base / "project" / "src", self.base / "common")
        (self.base / "bin").mkdir()
        for name, body in _STUBS.items():
            (self.base / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
            (self.base / "bin" / name).chmod(0o755)

    def install(self, version: int) -> None:
        for old in self.site_packages.glob("installed-*"):
            shutil.rmtree(old)
        information = self.site_packages / f"installed-{version}.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: installed\nVersion: {version}.0\n")
        (self.site_packages / "installed.py").write_text(f"V = {version}\n")

    def editable(self, *directories: Path) -> None:
        (self.site_packages / "editable.pth").write_text("".join(f"{path}\n" for path in directories))

    def install_another(self) -> None:
        other = self.base / "other"
        other.mkdir(exist_ok=True)
        for name in ("commonlib.py", "mylib.py"):
            (other / name).write_text("V = -5\n")
        self.editable(other)

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.base}/bin:{os.environ['PATH']}", "HOME": str(self.base), "LC_ALL": "C.UTF-8",
            "SPRITZ_HOME": str(self.base / "home"), "USER": "ada",
        }  # fmt: skip

    def submit(self) -> Path:
        """The directory of the queued run."""
        program = "from spritz.cli.spritz import entry; entry()"
        done = subprocess.run(
            [sys.executable, "-c", program, "run", "-d", "--", str(self.python), "main.py"],
            cwd=self.base / "project", env=self.environment(), capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "not in the snapshot" not in done.stderr
        return self.base / "home" / "runs" / done.stdout.strip()

    def run(self, directory: Path) -> tuple[str, ...]:
        """The numbers that the job printed, the last that of the installed package."""
        variables = {
            **self.environment(), "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_NNODES": "1",
            "SLURM_JOB_NUM_NODES": "1", "SPRITZ_SAMPLE_SECONDS": "0",
        }  # fmt: skip
        log = directory / "log" / "0-0.log"
        script = (directory / "job.sh").read_text().replace('--output="$log" --error="$log"', "")
        script = script.replace('2>> "$errors"', f'2>&1 > "{log}"')
        done = subprocess.run(
            ["bash", "-c", script], cwd=directory, env=variables, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return tuple(log.read_text().split())


@contextmanager
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as directory:
        made = Place(Path(os.path.realpath(directory)))
        made.set_up()
        yield made


def _edit(name: str) -> Callable[[Place], None]:
    def edit(where: Place) -> None:
        path = where.base / name
        if path.parent.exists():
            path.write_text("print('edited')\nV = -1\n")

    return edit


def _delete(name: str) -> Callable[[Place], None]:
    return lambda where: (where.base / name).unlink(missing_ok=True)


def _git(repository: str, *words: str) -> Callable[[Place], None]:
    def call(where: Place) -> None:
        if (where.base / repository).exists():
            # Some fail: nothing to commit, a branch that exists.
            command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
            subprocess.run(command, cwd=where.base / repository, capture_output=True)

    return call


def _move(repository: str) -> Callable[[Place], None]:
    def move(where: Place) -> None:
        if (where.base / repository).exists():
            (where.base / repository).rename(where.base / f"moved-{repository}-{len(os.listdir(where.base))}")

    return move


_OPERATIONS: dict[str, Callable[[Place], None]] = {
    **{f"edit {name}": _edit(name) for name in _FILES},
    **{f"delete {name}": _delete(name) for name in _FILES},
    **{
        f"git {' '.join(words)} in {repository}": _git(repository, *words)
        for repository in ("project", "common")
        for words in (
            ("commit", "-qam", "later"), ("stash", "-u"), ("checkout", "-q", "--orphan", "empty"), ("rm", "-rfq", "."),
            ("reset", "-q", "--hard"), ("clean", "-fdxq"), ("reflog", "expire", "--expire=now", "--all"),
            ("gc", "-q", "--prune=now"), ("branch", "-qD", "main"),
        )
    },
    "move project": _move("project"),
    "move common": _move("common"),
    "upgrade": lambda where: where.install(2),
    "remove the editable installation": lambda where: where.editable(),
    "install another tree as editable": lambda where: where.install_another(),
}  # fmt: skip


def _check(names: list[str]) -> None:
    with place() as where:
        directory = where.submit()
        for name in names:
            _OPERATIONS[name](where)
        computed, installed = where.run(directory)
        assert computed == "11117"
        run = record.read(directory)
        recorded = record.surroundings(where.base / "home", directory, run)["python"]["packages"]
        assert f"installed=={installed}.0" in recorded, "the record names the version that ran"
        assert "installed==1.0" in run.surroundings["python"]["packages"]


@given(st.lists(st.sampled_from(sorted(_OPERATIONS)), min_size=1, max_size=6))
@settings(max_examples=5, deadline=None)
def test_a_run_computes_what_it_would_have_at_submission(names: list[str]) -> None:
    _check(names)


@pytest.mark.slow
@given(st.lists(st.sampled_from(sorted(_OPERATIONS)), min_size=1, max_size=10))
@settings(max_examples=300, deadline=None)
def test_a_run_computes_what_it_would_have_at_submission_many_times(names: list[str]) -> None:
    _check(names)
