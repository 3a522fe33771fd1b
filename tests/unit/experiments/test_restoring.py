"""The environment of a run is made again: all of it or nothing, once, and only where that is possible."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
import venv
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spritz.experiments.code import interpreters, restoring
from spritz.experiments.code.restoring import Recipe, Restored
from spritz.experiments.errors import ExperimentError

from . import uv_program


def facts(*packages: str, **more: Any) -> dict[str, Any]:
    """What is recorded of an interpreter with these packages."""
    return {
        "python": sys.version.split()[0], "implementation": "cpython", "machine": os.uname().machine,
        "base": getattr(sys, "_base_executable", sys.executable), "base_prefix": sys.base_prefix,
        "executable": "/p/.venv/bin/python", "prefix": "/p/.venv", "packages": list(packages), "origins": {},
        "editables": {}, "paths": {}, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({}, "not known which interpreter"),
        ({"executable": "/x/python"}, "not known which interpreter"),
        ({"python": "3.11.1", "packages": ["a==1"]}, "an older release recorded it"),
        (facts(implementation="pypy"), "its interpreter is pypy"),
        (facts(machine="s390x"), r"another architecture \(s390x\)"),
        (facts("a==1", origins={"a": {"installer": "conda"}}), "packages are conda's: a"),
        (facts("a==1", origins={"a": {"url": "file:///p/a", "dir_info": {}}}), "a was installed from file:///p/a"),
        (
            facts("a==1", origins={"a": {"url": "https://h/a.whl", "archive_info": {}}}),
            "installed from https://h/a.whl",
        ),
        (
            facts("a==1", origins={"a": {"url": "https://h/a", "vcs_info": {"vcs": "git"}}}),
            "installed from https://h/a",
        ),
        (facts("a==1", origins={"a": {"url": ""}}), "a was installed from an unknown place"),
        (facts("a==1", origins={"a": {"dir_info": {"editable": True}}}, editables={"a": {"x.so": None}}), "were built"),
        (facts("a==1", origins={"a": {"dir_info": {"editable": True}}}), "parts of it were built"),
        (facts("a==1\n--index-url=http://h"), "is no version of a package"),
    ],
)
def test_what_cannot_be_made_again_is_refused_with_its_reason(known: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExperimentError, match=reason):
        restoring.recipe("r-1", known)


def test_every_reason_is_named_at_once() -> None:
    origins = {
        "a": {"url": "file:///a"},
        "b": {"url": "file:///b"},
        **{f"c{n}": {"installer": "conda"} for n in range(9)},
    }
    with pytest.raises(ExperimentError) as refused:
        restoring.recipe("r-1", facts("a==1", "b==1", *(f"c{n}==1" for n in range(9)), origins=origins))
    for part in ("file:///a", "file:///b", "c0, c1, c2, c3, c4 and 4 more"):
        assert part in refused.value.message


def test_commits_and_digests_are_fixed_sources() -> None:
    origins = {
        "a": {"url": "https://h/a.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "py"},
        "b": {"url": "https://h/b.whl", "archive_info": {"hashes": {"sha256": "12"}}},
        "c": {"url": "https://h/c.whl", "archive_info": {"hash": "sha256=34"}},
    }
    wanted = restoring.recipe("r-1", facts("a==1", "b==1", "c==1", "d==1", origins=origins))
    assert wanted.requirements == (
        "a @ git+https://h/a.git@abc#subdirectory=py", "b @ https://h/b.whl#sha256=12", "c @ https://h/c.whl#sha256=34",
        "d==1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "image", "reason"),
    [
        ("conda run -n x python t.py", "", "`conda` chooses"),
        ("uvx ruff", "", "`uvx` chooses"),
        ("uv tool run ruff", "", "`uv` chooses"),
        ("uv run --extra x --with numpy python t.py", "", "`uv run --with` makes"),
        ("python t.py", "/i.sqsh", "container /i.sqsh"),
    ],
)
def test_commands_with_environments_of_their_own_are_refused(command: str, image: str, reason: str) -> None:
    with pytest.raises(ExperimentError, match=reason):
        restoring.need_command("r-1", command.split(), image)
    restoring.need_command("r-1", ["uv", "run", "--extra", "x", "python", "t.py", "--with", "y"], "")


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a program uv."""
    (tmp_path / "home").mkdir()
    place = tmp_path / "stub"
    uv_program.write(place)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    return place


def made(tmp_path: Path, *packages: str, tell: Callable[[str], None] = print) -> Path:
    wanted = restoring.recipe("r-1", facts(*packages))
    return Path(restoring.make("r-1", wanted, tmp_path / "home", tmp_path, os.environ, tell))


def test_the_same_packages_are_one_environment(tmp_path: Path, stub: Path) -> None:
    assert made(tmp_path, "one==1", "two==2") == made(tmp_path, "two==2", "one==1") != made(tmp_path, "one==1")
    assert len((stub / "calls").read_text().splitlines()) == 2
    facts_now = interpreters.examine(tmp_path / "home", str(made(tmp_path, "one==1") / "bin" / "python"), os.environ)
    assert facts_now["packages"] == ["one==1"]


def test_a_failed_installation_leaves_nothing_and_is_tried_again(tmp_path: Path, stub: Path) -> None:
    (stub / "fails").touch()
    with pytest.raises(ExperimentError, match="could not be made") as failed:
        made(tmp_path, "one==1")
    assert failed.value.hint == "no version of two"
    assert not list(tmp_path.glob("home/venvs/*/venv"))
    (stub / "fails").unlink()
    assert (made(tmp_path, "one==1") / "bin" / "python").exists()


def test_a_full_disk_is_an_error_that_leaves_nothing(
    tmp_path: Path, stub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as now:
        now.setattr(restoring, "_write", full)
        with pytest.raises(ExperimentError, match="/complete: No space left on device"):
            made(tmp_path, "one==1")
    assert not list(tmp_path.glob("home/venvs/*/venv"))
    assert made(tmp_path, "one==1").exists()


def test_another_version_than_the_recorded_one_is_noticed(tmp_path: Path, stub: Path) -> None:
    wanted = replace(restoring.recipe("r-1", facts("one==1")), requirements=("one==2",))
    with pytest.raises(ExperimentError, match="made without one==1"):
        restoring.make("r-1", wanted, tmp_path / "home", tmp_path, os.environ, print)
    assert not list(tmp_path.glob("home/venvs/*/venv"))


def test_an_absent_interpreter_is_refused(tmp_path: Path, stub: Path) -> None:
    wanted = restoring.recipe("r-1", facts(python="3.9.99"))
    with pytest.raises(ExperimentError, match=r"Python 3\.9\.99 is not on this machine") as refused:
        restoring.make("r-1", wanted, tmp_path / "home", tmp_path, os.environ, print)
    assert "uv python install 3.9.99" in refused.value.hint


_PROGRAM = """\
import os, pathlib, sys
from tests.unit.experiments.test_restoring import made
print(made(pathlib.Path(sys.argv[1]), "one==1", tell=lambda line: print(line, file=sys.stderr, flush=True)))
"""


def start(tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], cwd=Path(__file__).parents[3], text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def first_line(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    assert word in iter(process.stderr.readline, "").__next__()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_what_was_interrupted_is_never_used(tmp_path: Path, stub: Path, end: signal.Signals) -> None:
    """After a kill the installer still works there: the next process waits until it has ended, and starts afresh."""
    os.mkfifo(stub / "hold")
    process = start(tmp_path)
    first_line(process, "making the environment")
    holding = os.open(stub / "hold", os.O_WRONLY)  # returns when the installer waits
    process.send_signal(end)
    process.communicate(timeout=100)
    assert not list(tmp_path.glob("home/venvs/*/complete"))
    if end == signal.SIGINT:
        assert not list(tmp_path.glob("home/venvs/*/venv"))
        os.close(holding)
        (stub / "hold").unlink()
        again = start(tmp_path)
    else:
        again = start(tmp_path)
        first_line(again, "another process makes")
        (stub / "hold").rename(stub / "no-hold")
        os.close(holding)
    out, err = again.communicate(timeout=100)
    assert again.returncode == 0, err
    assert (Path(out.strip()).parent / "complete").exists()
    assert len((stub / "calls").read_text().splitlines()) == 2


def test_two_at_once_make_it_once(tmp_path: Path, stub: Path) -> None:
    os.mkfifo(stub / "hold")
    one = start(tmp_path)
    first_line(one, "making the environment")
    holding = os.open(stub / "hold", os.O_WRONLY)
    two = start(tmp_path)
    first_line(two, "another process makes")
    os.close(holding)
    outputs = {process.communicate(timeout=100)[0] for process in (one, two)}
    assert len(outputs) == 1
    assert len((stub / "calls").read_text().splitlines()) == 1


def test_an_environment_whose_interpreter_has_gone_is_made_again(tmp_path: Path, stub: Path) -> None:
    place = made(tmp_path, "one==1")
    (place / "bin" / "python").unlink()
    (place / "bin" / "python").symlink_to(tmp_path / "gone")
    made(tmp_path, "one==1")
    assert (place / "bin" / "python").exists()


def test_unused_environments_go(tmp_path: Path, stub: Path) -> None:
    home = tmp_path / "home"
    used, unused, young = (made(tmp_path, f"one=={n}") for n in range(3))
    run = home / "runs" / "r-2"
    run.mkdir(parents=True)
    (run / restoring.FILE).write_text(restoring.written(Restored("r-1", str(used), ())))
    for place in (used, unused):
        os.utime(place.parent / "complete", (1, 1))
    restoring.remove_unused(home, [run, home / "runs" / "other"], before=1000.0)
    assert (used.exists(), unused.parent.exists(), young.exists()) == (True, False, True)
    (run / restoring.FILE).write_text("{")
    with pytest.raises(ExperimentError, match="is damaged"):
        restoring.remove_unused(home, [run], before=1000.0)
    assert used.exists()


def test_an_environment_that_is_being_made_stays(tmp_path: Path) -> None:
    place = tmp_path / "home" / "venvs" / "abc"
    with restoring._locked(place, print):
        os.utime(place / "lock", (1, 1))
        restoring.remove_unused(tmp_path / "home", [], before=1000.0)
        assert place.exists()
    restoring.remove_unused(tmp_path / "home", [], before=1000.0)
    assert not place.exists()


def test_a_lock_that_was_removed_with_its_directory_is_taken_again(tmp_path: Path) -> None:
    place, told = tmp_path / "venvs" / "abc", threading.Event()
    with restoring._locked(place, print):

        def waiting() -> None:
            with restoring._locked(place, lambda _: told.set()) as descriptor:
                assert os.path.samestat(os.fstat(descriptor), os.stat(place / "lock"))

        thread = threading.Thread(target=waiting)
        thread.start()
        assert told.wait(100)
        (place / "lock").unlink()
        place.rmdir()
    thread.join(100)
    assert (place / "lock").exists()


def wheel(folder: Path, name: str, version: str, text: str) -> None:
    """A wheel of one module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data.encode()).digest()).rstrip(b'=').decode()},{len(data)}"
        for path, data in files.items()
    ]
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, data in {**files, f"{info}/RECORD": "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"}.items():
            archive.writestr(path, data)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with an editable package, as poetry installs it: its RECORD has absolute paths."""
    place = tmp_path / "project" / ".venv"
    venv.create(place, symlinks=True)
    site = next(place.glob("lib/python3*/site-packages"))
    (tmp_path / "project" / "src").mkdir()
    (tmp_path / "project" / "src" / "mine.py").write_text("def main():\n    print('mine')\n")
    info = site / "mine-0.1.dist-info"
    info.mkdir()
    texts = {
        site / "mine.pth": f"{tmp_path}/project/src\n",
        info / "METADATA": "Metadata-Version: 2.1\nName: mine\nVersion: 0.1\n\nA description.\n",
        info / "direct_url.json": '{"url": "file:///p", "dir_info": {"editable": true}}',
        place / "bin" / "mine": f"#!{place}/bin/python\nfrom mine import main\nmain()\n",
    }
    for path, text in texts.items():
        path.write_text(text)
    (place / "bin" / "mine").chmod(0o755)
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in (*texts, info / "RECORD")))
    (site / "loose.pth").write_text(f"{tmp_path}/project\nimport nothing_of_that_name\n")
    return place


def test_pip_makes_it_with_the_users_packages_as_they_were_installed(
    tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "wheels", "dep", "1.0", "VALUE = 1\n")
    wheel(tmp_path / "wheels", "dep", "2.0", "VALUE = 2\n")
    (tmp_path / "home").mkdir()
    for name, text in (("NO_INDEX", "1"), ("FIND_LINKS", str(tmp_path / "wheels")), ("CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(f"PIP_{name}", text)
    variables = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    variables["PATH"] = "/usr/bin:/bin"  # without uv
    known = interpreters.examine(tmp_path, str(environment / "bin" / "python"), variables)
    known["packages"].append("dep==1.0")
    place = restoring.make("r-1", restoring.recipe("r-1", known), tmp_path / "home", tmp_path, variables, print)
    program = (
        "import dep, mine, sys; from importlib.metadata import version; print(dep.VALUE, version('mine'), sys.path)"
    )
    done = subprocess.run([f"{place}/bin/python", "-c", program], capture_output=True, text=True, env=variables)
    assert done.stdout.startswith("1 0.1 "), done.stderr
    assert not done.stderr
    assert f"'{tmp_path}/project'" in done.stdout
    assert subprocess.run([f"{place}/bin/mine"], capture_output=True, text=True).stdout == "mine\n"
    again = interpreters.examine(tmp_path / "home", f"{place}/bin/python", variables)
    assert again["packages"] == ["dep==1.0", "mine==0.1"], "pip, which installed them, is gone"
    same = restoring.recipe("r-2", {**again, "paths": known["paths"]})
    assert same.digest == restoring.recipe("r-1", known).digest, "a rerun of the rerun has the same environment"


def test_words_of_the_command_lead_to_it(tmp_path: Path, environment: Path) -> None:
    there = tmp_path / "home" / "venv"
    venv.create(there, symlinks=True)
    restored = Restored("r-1", str(there), (os.path.realpath(environment), "/usr"))
    project = tmp_path / "project"
    command = [".venv/bin/python", f"{environment}/bin/python3", "python", "/usr/bin/env", "train.py", "../bin/python"]
    assert restored.words(command, project) == (
        f"{there}/bin/python", f"{there}/bin/python3", "python", "/usr/bin/env", "train.py", "../bin/python",
    )  # fmt: skip
    line = f"cd x && {environment}/bin/python t.py; /usr/bin/env"
    assert restored.words(["bash", "-c", line], project)[2] == f"cd x && {there}/bin/python t.py; /usr/bin/env"
    with pytest.raises(ExperimentError, match=r"\.venv/bin/mine: no package of r-1 has this program"):
        restored.words([".venv/bin/mine"], project)
    assert restored.targets(str(project), [".venv", "data"]) == {".venv": str(there)}
    lines = f"VIRTUAL_ENV=/x PATH=/x/bin:$PATH PYTHONHOME=/x\n{restored.lines(['uv', 'run', 'x'])}"
    shown = subprocess.run(
        ["bash", "-c", f"{lines}command -v python; echo $VIRTUAL_ENV $UV_PROJECT_ENVIRONMENT $UV_NO_SYNC:$PYTHONHOME"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout == f"{there}/bin/python\n{there} {there} 1:\n"


def test_a_script_that_names_its_interpreter_is_refused(tmp_path: Path, environment: Path) -> None:
    there = tmp_path / "home" / "venv"
    venv.create(there, symlinks=True)
    restored = Restored("r-1", str(there), (os.path.realpath(environment),))
    script = tmp_path / "project" / "run.py"
    script.write_text(f"#!{environment}/bin/python\n")
    script.chmod(0o755)
    variables = {**os.environ, **restored.variables(["./run.py"], os.environ)}
    with pytest.raises(ExperimentError, match=f"would still start {environment}/bin/python"):
        restored.need_use(["./run.py"], tmp_path / "project", variables)
    restored.need_use(["python", "run.py"], tmp_path / "project", variables)
    restored.need_use(["bash", "run.sh"], tmp_path / "project", variables)


def test_a_recipe_is_of_its_versions(tmp_path: Path) -> None:
    wanted = restoring.recipe("r-1", facts("a==1"))
    assert isinstance(wanted, Recipe)
    others = [replace(wanted, python="3.0.0"), replace(wanted, machine="x"), replace(wanted, requirements=("a==2",))]
    assert len({recipe.digest for recipe in (wanted, *others)}) == 4
