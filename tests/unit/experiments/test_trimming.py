"""A checkout whose run has ended keeps what the run wrote, and is whole again when the run goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spritz.experiments.code import snapshot, trimming
from spritz.experiments.job import script
from spritz.experiments.records.record import Run
from spritz.experiments.results import written


class Checkout:
    """A run's checkout of a project with some files."""

    def __init__(self, base: Path) -> None:
        project = base / "project"
        for name, text in (
            ("train.py", "t"),
            ("lib/net.py", "n"),
            ("lib/deep/er/loss.py", "l"),
            ("conf/é a.yaml", "c"),
        ):
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text)
        (project / "train.py").chmod(0o755)
        (project / "current").symlink_to("train.py")
        self.home = base / "home"
        self.store = self.home / "snapshots.git"
        self.tree = snapshot.take(project, self.store).tree
        self.code = base / "run one" / "code"
        self.code.parent.mkdir()
        self.begin()

    def begin(self, status: int = 0) -> None:
        """What the job's script does before the command."""
        lines = snapshot.checkout_lines(self.store, self.tree, f"'{self.code}'")
        done = subprocess.run(["bash", "-uc", lines], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (status, ""), done.stderr

    def end(self) -> None:
        trimming.trim(self.store, self.tree, self.code)

    def files(self) -> list[str]:
        return sorted(
            os.path.relpath(os.path.join(place, name), self.code)
            for place, folders, names in os.walk(self.code)
            for name in [*names, *(name for name in folders if os.path.islink(os.path.join(place, name)))]
            if name != snapshot.MARK
        )

    def folders(self) -> list[str]:
        return sorted(os.path.relpath(place, self.code) for place, _, _ in os.walk(self.code))

    def written(self) -> list[str]:
        run = Run(name="r", user="u", created_at=0.0, command=["x"], code={"tree": self.tree})
        return [file.path for file in written.files(self.home, self.code.parent, run)]


ALL = ["conf/é a.yaml", "current", "lib/deep/er/loss.py", "lib/net.py", "train.py"]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_what_the_run_wrote_or_changed_stays_and_nothing_else(checkout: Checkout, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "net.py").write_text("n")  # the same as in the snapshot, but behind a link
    (checkout.code / "train.py").write_text("changed")
    (checkout.code / "out" / "empty").mkdir(parents=True)
    (checkout.code / "out" / "model.pt").write_text("m")
    (checkout.code / ".venv").symlink_to(data)
    shutil.rmtree(checkout.code / "lib")
    (checkout.code / "lib").symlink_to(data)
    (checkout.code / "conf" / "__pycache__").mkdir()
    (checkout.code / "conf" / "__pycache__" / "a.pyc").write_text("compiled")
    checkout.end()
    assert checkout.files() == [".venv", "lib", "out/model.pt", "train.py"]
    assert checkout.folders() == [".", "out", "out/empty"]
    assert (data / "net.py").read_text() == "n"
    note = (checkout.code.parent / "code-removed.txt").read_text()
    assert checkout.tree in note
    checkout.end()  # nothing is left to do
    assert checkout.files() == [".venv", "lib", "out/model.pt", "train.py"]


def test_a_run_that_goes_on_has_its_files_and_those_that_it_wrote(checkout: Checkout) -> None:
    time.sleep(0.01)  # the file is newer than the checkout, by the clock of the kernel
    (checkout.code / "train.py").write_text("changed")
    (checkout.code / "model.pt").write_text("m")
    before = checkout.written()
    assert before == ["model.pt", "train.py"]
    checkout.end()
    assert checkout.files() == before == checkout.written()
    checkout.begin()
    assert checkout.files() == sorted([*ALL, "model.pt"])
    assert (checkout.code / "train.py").read_text() == "changed"
    assert (checkout.code / "lib/net.py").read_text() == "n"
    assert (checkout.code / "current").readlink() == Path("train.py")
    assert checkout.written() == before
    assert not list(checkout.code.parent.glob("code-removed*"))
    checkout.end()
    assert checkout.files() == before


def test_what_the_run_removed_or_replaced_stays_so(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.code / "train.py").unlink()
    shutil.rmtree(checkout.code / "lib" / "deep")
    (checkout.code / "lib" / "deep").write_text("a file now")
    shutil.rmtree(checkout.code / "conf")
    (tmp_path / "data").mkdir()
    (checkout.code / "conf").symlink_to(tmp_path / "data")
    before = checkout.files()
    for _ in range(2):
        checkout.end()
        assert checkout.files() == ["conf", "lib/deep"]
        checkout.begin()
        assert checkout.files() == before == ["conf", "current", "lib/deep", "lib/net.py"]
        assert list((tmp_path / "data").iterdir()) == []
        assert not list(checkout.code.parent.glob("code-removed*"))


def test_a_removal_that_was_cut_short_is_made_good_by_the_next_life_or_ended_by_the_next_removal(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kill = tmp_path / "bin" / "rm"
    kill.parent.mkdir()
    # Removes the first file, then kills xargs and the shell that started it.
    body = '/bin/rm -- "$3"; kill -9 $PPID $(ps -o ppid= $PPID)'
    kill.write_text(f'#!/bin/bash\nif [ "$1 $2" = "-f --" ]; then {body}; else exec /bin/rm "$@"; fi\n')
    kill.chmod(0o755)
    path = os.environ["PATH"]
    for next_one, files in ((checkout.begin, ALL), (checkout.end, [])):
        monkeypatch.setenv("PATH", f"{kill.parent}:{path}")
        checkout.end()
        assert len(checkout.files()) == len(ALL) - 1
        monkeypatch.setenv("PATH", path)
        next_one()
        assert checkout.files() == files


def test_a_run_that_changed_all_files_is_dealt_with_once(checkout: Checkout) -> None:
    for path in checkout.code.iterdir():
        if path.name != snapshot.MARK:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    checkout.end()
    assert not trimming.is_whole(checkout.code)


def test_a_checkout_that_is_set_aside_takes_its_note_along(checkout: Checkout) -> None:
    (checkout.code / "model.pt").write_text("m")
    checkout.end()
    lines = "finish() { exit $1; }\n" + script._SETTING_ASIDE.format(version=2)
    run = checkout.code.parent
    subprocess.run(["bash", "-euc", lines], check=True, env={**os.environ, "SPRITZ_RUN_DIR": str(run)})
    assert sorted(path.name for path in run.iterdir()) == ["code-1", "code-1-removed.txt", "code-version"]
    checkout.begin()
    checkout.end()
    assert checkout.files() == []


def test_a_full_file_system_gets_room(checkout: Checkout) -> None:
    (checkout.code.parent / "code-removed.part").symlink_to("/dev/full")  # opens, but has no room for the note
    checkout.end()
    assert checkout.files() == []
    checkout.begin()
    assert checkout.files() == ALL


@pytest.mark.parametrize("hurt", [
    lambda checkout: shutil.rmtree(checkout.store),
    lambda checkout: setattr(checkout, "tree", "0" * 40),
    lambda checkout: (checkout.code / snapshot.MARK).unlink(),
    lambda checkout: (checkout.code.parent / "code-removed.part").mkdir(),  # the note cannot be written
])  # fmt: skip
def test_files_that_cannot_be_put_back_stay(checkout: Checkout, hurt: Callable[[Checkout], object]) -> None:
    hurt(checkout)
    checkout.end()
    assert checkout.files() == ALL


def test_a_life_whose_files_cannot_be_put_back_says_so(checkout: Checkout) -> None:
    checkout.end()
    shutil.rmtree(checkout.store)
    checkout.begin(status=66)
