"""sacct with more job ids than one question may name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spritz.cli.listings.acct import answer
from spritz.model.accounting.records import JobPick, JobRecord, JobRecords, JobWithSteps, SelectJobs


class _Asked:
    """slurmdbd: job 7 is a task of array 2."""

    def __init__(self) -> None:
        self.questions: list[list[int]] = []

    def stream_once(self, query: SelectJobs, *_: object, **__: object) -> Iterator[JobRecords]:
        ids = [pick.job_id for pick in query.picks]
        self.questions.append(ids)
        found = sorted({*ids, 7} if 2 in ids else set(ids))
        yield JobRecords(now=5.0, jobs=[JobWithSteps(job=JobRecord(number=one, job_id=one)) for one in found])


def test_a_long_list_of_jobs_is_asked_for_in_parts_and_each_job_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "PICKS_MAX", 3)
    slurmdbd: Any = _Asked()
    picks = tuple(JobPick(number) for number in (9, 7, 1, 2, 5, 8, 3, 9))
    told = [one.job.job_id for one, _ in answer.answered(slurmdbd, SelectJobs(picks=picks))]
    assert slurmdbd.questions == [[1, 2, 3], [5, 7, 8], [9, 9]]
    assert sorted(told) == [1, 2, 3, 5, 7, 8, 9]
