"""Words and variables may have bytes that are no text: the job gets them, and the record has them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from spritz.experiments.errors import ExperimentError
from spritz.experiments.interactive import attach
from spritz.experiments.interface import reporting
from spritz.experiments.job import submission
from spritz.experiments.job.settings import RunOptions
from spritz.experiments.records import record
from spritz.experiments.records.store import Store
from tests.unit.experiments.test_snapshot import project

__all__ = ["project"]  # a fixture
#: The byte 0xff as Python has it in a text.
BYTE = "a\udcff"


def test_a_run_has_them_in_its_command_and_its_environment(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPRITZ_RUN_STORE", raising=False)
    monkeypatch.setenv("LATIN", BYTE)

    def queue(_: Path, environment: Mapping[str, str]) -> str:
        assert environment["LATIN"] == BYTE
        return "7"

    store = Store(tmp_path / "home")
    options = RunOptions(tags=(BYTE,), env={"GIVEN": BYTE})
    request = submission.Request(command=("python3", "train.py", BYTE), directory=project, options=options, queue=queue)
    run = submission.launch(request, store)
    directory = Path(store.get(run.name, submission.user()).directory)
    assert record.read(directory).command == ["python3", "train.py", BYTE]
    assert record.read(directory).surroundings["variables"]["LATIN"] == BYTE
    assert store.get(run.name, submission.user()).command == "python3 train.py 'a?'"
    assert b"a\xff" in (directory / "job.sh").read_bytes()
    assert subprocess.run(["bash", "-n", directory / "job.sh"], check=False).returncode == 0
    assert attach.tasks_per_node(directory) is not None
    with pytest.raises(ExperimentError, match="no such run"):
        store.get(BYTE, submission.user())


def test_a_command_that_cannot_take_them_says_so() -> None:
    said = []

    class Terminal:
        def error(self, text: str) -> None:
            said.append(text)

    status = reporting(lambda *_: int(bool(f"word {BYTE}".encode())))(None, Terminal())  # type: ignore[arg-type]
    assert (status, said) == (1, ["b'word a\\xff' is no text in UTF-8"])
