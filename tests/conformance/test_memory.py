"""slurmdbd holds a bounded number of rows at a time, whatever is asked: counted, not weighed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spritz.accounting import select
from spritz.accounting.store import Store, job_of, step_of
from spritz.model.accounting.records import SelectJobs
from spritz_testing.history import History, in_groups
from tests.conformance.test_accounting import JOURNAL, register

pytestmark = pytest.mark.xdist_group("databases")


class Held:
    """Rows that were made into records and not handed on yet; `most` at any time."""

    def __init__(self) -> None:
        self.now = self.most = self.made = 0

    def counting(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.now += 1
            self.made += 1
            self.most = max(self.most, self.now)
            return convert(*arguments)

        return counted


@pytest.fixture
def large(store: Store, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, Held]:
    """A history that is many times a piece, which is made small."""
    register(store)
    store.ingest("c1", JOURNAL, in_groups(History(51).events(400), 51))
    monkeypatch.setattr(select, "PIECE", 20)
    monkeypatch.setattr(select, "STEPS_MAX", 30)
    held = Held()
    monkeypatch.setattr(select, "job_of", held.counting(job_of))
    monkeypatch.setattr(select, "step_of", held.counting(step_of))
    return store, held


@pytest.mark.parametrize(
    "question",
    [
        SelectJobs(),
        SelectJobs(duplicates=True),
        SelectJobs(not_eligible=True, duplicates=True),
        SelectJobs(steps=False),
    ],
)
def test_rows_are_handed_on_as_they_are_read(large: tuple[Store, Held], question: SelectJobs) -> None:
    store, held = large
    jobs = steps = 0
    for piece in select.read_jobs(store.engine, question):
        jobs += len(piece)
        steps += sum(len(one.steps) for one in piece)
        # What is handed on is the caller's to hold.
        held.now = 0
    assert jobs >= 400
    assert question.steps is (steps > 0)
    # A piece of jobs with its steps, the jobs that the next rows may belong to, and the largest job's own steps.
    assert held.made > 400
    assert held.most <= 2 * 20 + 2 * 30


def test_a_reader_that_stops_has_no_more_rows_read_for_it(large: tuple[Store, Held]) -> None:
    store, held = large
    pieces = select.read_jobs(store.engine, SelectJobs())
    next(pieces)
    made = held.made
    assert made <= 2 * 20 + 2 * 30
    pieces.close()  # type: ignore[attr-defined]  # it is a generator
    assert held.made == made
