"""`spritz logs` prints the output of the ranks that there are."""

from __future__ import annotations

from pathlib import Path

from spritz.experiments.commands import logs
from spritz.experiments.records.store import Store
from tests.unit.experiments.test_edit import add, called, store

__all__ = ["store"]  # a fixture


def printed(*words: str) -> tuple[int, str]:
    return called(logs, *words)


def test_a_rank_that_there_is_not_is_refused(store: Store) -> None:
    name = add(store)
    folder = Path(store.get(name, "me").directory) / "log"
    folder.mkdir(exist_ok=True)
    assert printed(name, "--rank", "2") == (0, "")  # it never had a task
    for rank, text in enumerate(("zero\n", "")):
        (folder / f"0-{rank}.log").write_text(text)
    assert printed(name, "--rank", "0") == (0, "zero\n")
    assert printed(name, "--rank", "1") == (0, "")
    assert printed(name, "--rank", "2") == (1, "there is no rank 2: the run has 2")
