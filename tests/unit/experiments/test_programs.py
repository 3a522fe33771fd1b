"""What cannot run is refused before anything is queued, and what could run on a node is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.experiments.code import linked, programs, snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job.settings import RunOptions
from spritz.experiments.job.submission import Request, need_program

from .test_snapshot import git


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with scripts that are tracked, ignored, executable or not, and an environment."""
    path = Path(os.path.realpath(tmp_path)) / "project"
    for name, mode in {
        "train.py": 0o644, "sub/run.py": 0o644, "run.sh": 0o755, "plain.sh": 0o644, "ignored.py": 0o644,
        "tools/ignored.py": 0o755, ".venv/bin/python": 0o755, "pkg/__main__.py": 0o644, "elsewhere/x.py": 0o644,
    }.items():  # fmt: skip
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("#!/bin/sh\n")
        (path / name).chmod(mode)
    (path / "shortcut").symlink_to("elsewhere")
    (path / ".venv" / "bin" / "python3.99").symlink_to("/only/on/nodes/python3.99")
    (path / ".gitignore").write_text("ignored.py\n.venv\nelsewhere\n")
    git(path, "init", "-q", "-b", "main")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "one")
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path / "home"))
    for name in ("python", "bash", "torchrun", "uv", "touch"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).touch(mode=0o755)
    return path


def need(project: Path, command: str, *, link: tuple[str, ...] = (), in_place: bool = False) -> None:
    store = project.parent / "home" / "snapshots.git"
    code = None if in_place else snapshot.take(project, store)
    links = [] if code is None else linked.paths(code, store, link)
    place = programs.Place(project, code, store, links)
    programs.need(command.split(), place, {"PATH": str(project.parent / "bin")})


@pytest.mark.parametrize("command", ["train.py", "./train.py"])
def test_advice_names_a_python_that_is_there(project: Path, command: str) -> None:
    (project.parent / "bin" / "python").rename(project.parent / "bin" / "python3")
    with pytest.raises(ExperimentError) as refused:
        need(project, command)
    assert "python3 train.py" in refused.value.hint


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        ("train.py", "train.py: command not found", "did you mean: python train.py?"),
        ("run.sh", "run.sh: command not found", "did you mean: ./run.sh?"),
        ("pyhton train.py", "pyhton: command not found", "did you mean python? "),
        ("nowhere-at-all", "nowhere-at-all: command not found", "setup: lines of"),
        ("./nope.sh", "./nope.sh: no such file", ""),
        (".venv/bin/torchrun train.py", ".venv/bin/torchrun: no such file", ""),
        ("env/bin/python train.py", "env/bin/python: no such file", ""),
        ("./plain.sh", "./plain.sh: not executable", "chmod +x ./plain.sh, or: bash plain.sh"),
        ("./train.py", "./train.py: not executable", "chmod +x ./train.py, or: python train.py"),
        ("./pkg", "./pkg: is a directory", ""),
        ("python nope.py", "nope.py: no such file in", ""),
        ("python -W ignore -u nope.py", "nope.py: no such file in", ""),
        ("bash -e nope.sh", "nope.sh: no such file in", ""),
        ("torchrun --nproc-per-node=2 nope.py", "nope.py: no such file in", ""),
        ("uv run python nope.py", "nope.py: no such file in", ""),
    ],
)
def test_what_cannot_run_is_refused(project: Path, command: str, message: str, hint: str, *, in_place: bool) -> None:
    with pytest.raises(ExperimentError) as refused:
        need(project, command, in_place=in_place)
    assert refused.value.message.startswith(message)
    assert refused.value.hint.startswith(hint)
    assert not refused.value.message.endswith("/.")


@pytest.mark.parametrize(
    "command",
    [
        "python train.py", "./run.sh", "sub/../run.sh", ".venv/bin/python train.py", "python pkg", "python -m nope",
        "python -c x.py", "python tools/ignored.py", "/only/on/nodes/program", "../outside/program", "nvidia-smi",
        ".venv/bin/python3.99 train.py", "python shortcut/x.py", "shortcut/x", "touch new.py", "bash -c nope.sh",
        "torchrun --nproc-per-node 2 train.py", "python {script}.py", "uv run nope.py", "python",
    ],
)  # fmt: skip
def test_what_could_run_is_not_refused(project: Path, command: str) -> None:
    need(project, command)


@pytest.mark.parametrize("script", ["../loose/x.py", "{base}/loose/x.py", "{base}/link/run.sh"])
@pytest.mark.parametrize("before", ["python -u", "uv run python", "bash -e", "torchrun --nproc-per-node=2", ""])
def test_a_script_outside_of_the_project_is_named(project: Path, script: str, before: str) -> None:
    base = project.parent
    (base / "loose").mkdir()
    (base / "loose" / "x.py").touch()
    (base / "link").symlink_to("project")
    code = snapshot.take(project, base / "home" / "snapshots.git")
    command = f"{before} {script.format(base=base)} --data ../loose/y.py".split()
    assert programs.outside(command, code) == ("" if "link" in script else f"{base}/loose/x.py")


@pytest.mark.parametrize(
    "command", ["python train.py", "python shortcut/x.py", "python ../nope.py", "./run.sh", "python"]
)
def test_other_scripts_are_not_named(project: Path, command: str) -> None:
    code = snapshot.take(project, project.parent / "home" / "snapshots.git")
    assert programs.outside(command.split(), code) == ""


def test_an_ignored_script_needs_a_link(project: Path) -> None:
    with pytest.raises(ExperimentError, match=r"ignored\.py: it is ignored") as refused:
        need(project, "python ignored.py")
    assert refused.value.hint.startswith("--link ignored.py")
    need(project, "python ignored.py", link=("ignored.py",))
    need(project, "python ignored.py", in_place=True)


def test_a_script_that_is_newer_than_an_earlier_snapshot(project: Path) -> None:
    store = project.parent / "home" / "snapshots.git"
    place = programs.Place(project, snapshot.take(project, store), store, [])
    (project / "new.py").touch()
    with pytest.raises(ExperimentError, match=r"new\.py: it is newer than the snapshot"):
        programs.need(["python", "new.py"], place, {"PATH": str(project.parent / "bin")})
    (project / "train.py").unlink()
    programs.need(["python", "train.py"], place, {"PATH": str(project.parent / "bin")})


def test_the_snapshot_tells_whether_a_file_is_executable(project: Path) -> None:
    """Of a rerun with earlier code, the working tree's files may be others by now."""
    store = project.parent / "home" / "snapshots.git"
    place = programs.Place(project, snapshot.take(project, store), store, [])
    (project / "run.sh").chmod(0o644)
    (project / "plain.sh").chmod(0o755)
    programs.need(["./run.sh"], place, {})
    with pytest.raises(ExperimentError, match="not executable"):
        programs.need(["./plain.sh"], place, {})


@pytest.mark.parametrize("options", [RunOptions(setup=("cd sub",)), RunOptions(container_image="/i.sqsh")])
def test_lines_of_setup_and_images_may_have_what_is_not_here(project: Path, options: RunOptions) -> None:
    for command in (("no-such-program",), ("./nope",), ("python", "nope.py")):
        need_program(Request(command=command, directory=project, options=options), None, [])
