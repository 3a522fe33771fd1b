"""Every field of a job's request declares its duties below the record, and what it declares is true.

That placement does not see what is declared unseen: `tests/unit/scheduling/test_feasible.py`. That fields of their own
have no part in what jobs share: `tests/unit/cli/test_json.py`. That nothing acts on a field with a reason for that:
`tests/unit/config/test_every_done_option_acts.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.core.decide.submission.spec import check_lengths
from spritz.core.decision import Refused
from spritz.core.job.eligibility import HELD_REASONS
from spritz.model.commands.job import UpdateJob
from spritz.model.job.duties import FIELDS, read, updatable
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import (
    ArrayState,
    ContainerOptions,
    CronEntry,
    Dependency,
    EndSignal,
    Hold,
    Job,
    JobSpec,
    ResourceLimit,
    Sharing,
)
from spritz.model.reasons import Reason
from spritz.model.resources import GresRequest
from spritz.presentation.job.job_record import record_text
from spritz.presentation.json.jobs import job_json
from spritz_testing.builders import ROOT, World

HOW = "give it a line in DUTIES of model/job/record.py; the comment above says what its columns are"

_OTHER: dict[str, Any] = {
    "array": "0-9",
    "batch": False,
    "container": ContainerOptions(bundle="/bundle"),
    "cron": CronEntry(schedule="* * * * *"),
    "dependencies": (Dependency(kind="after", job_id=9),),
    "end_signal": EndSignal(signal=9),
    "limits": (ResourceLimit("NOFILE", 7),),
    "node_counts": (2, 3),
    "requeue": False,
    "sharing": Sharing.USER,
}


def other(name: str) -> Any:
    """Another value of the field than `BASE` has."""
    if name in _OTHER:
        return _OTHER[name]
    if name.startswith(("gpus", "gres_per")):
        return (GresRequest(name="gpu", count=3),)
    usual = getattr(BASE, name)
    if isinstance(usual, bool):
        return not usual
    if isinstance(usual, tuple):
        return ("x",)
    return "x" if isinstance(usual, str) else 7


BASE = JobSpec(batch=True, work_dir="/tmp")


def job_of(spec: JobSpec) -> Job:
    """A pending job of this request, with what the core takes from it into the record."""
    return Job(
        id=1,
        spec=spec,
        submitted_at=5.0,
        eligible_at=5.0,
        hold=Hold.USER if spec.hold else Hold.NONE,
        reason=HELD_REASONS[Hold.USER] if spec.hold else Reason.NONE,
        priority=spec.priority or 0,
        dependencies=spec.dependencies,
        array=ArrayState(pending="3ff", task_count=10, task_max=9) if spec.array else None,
        array_job_id=1 if spec.array else 0,
    )


def words(job: Job) -> dict[str, str]:
    """The keys of `scontrol -d show job` with their first words."""
    text = record_text(job, 0.0, details=1)
    return {key: value for key, equals, value in (word.partition("=") for word in text.split()) if equals}


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def test_every_field_declares_its_duties() -> None:
    missing = set(JobSpec.__struct_fields__) - set(FIELDS)
    assert not missing, HOW
    assert set(FIELDS) <= set(JobSpec.__struct_fields__), "lines of fields that are gone"
    assert tuple(FIELDS) == JobSpec.__struct_fields__, "the lines are in the order of the fields"


@pytest.mark.parametrize("line", ["", "name always", "a sometimes unseen own - - -", "a never seen own - - -"])
def test_a_line_that_says_something_else_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        read(f"{line}\n")


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_shown_as_it_declares(name: str) -> None:
    """The key that it declares follows its value; with none, no key does."""
    before, after = job_of(BASE), job_of(replace(BASE, **{name: other(name)}))
    duty = FIELDS[name]
    in_json = changed(job_json(before, 0.0), job_json(after, 0.0))
    assert duty.json in in_json if duty.json else not in_json, f"JSON follows {name} in {in_json}"
    in_text = changed(words(before), words(after))
    assert duty.shown in in_text if duty.shown else not in_text, f"scontrol show job follows {name} in {in_text}"


@pytest.mark.parametrize("name", [name for name, duty in FIELDS.items() if duty.longest is not None])
def test_a_text_is_as_long_as_it_declares_at_most(name: str) -> None:
    longest = FIELDS[name].longest or 0
    usual = getattr(BASE, name)

    def of_length(length: int) -> Any:
        return ("x" * length,) if isinstance(usual, tuple) else "x" * length

    check_lengths(replace(BASE, **{name: of_length(longest)}))
    with pytest.raises(Refused):
        check_lengths(replace(BASE, **{name: of_length(longest + 1)}))


def test_a_field_that_may_not_be_updated_is_refused_by_name() -> None:
    world = World()
    job_id = world.submit()
    for name in sorted(FIELDS.keys() - updatable("pending")):
        outcome = world.do(UpdateJob(target=JobTarget(job_id), changes={name: None}), ROOT)
        assert outcome.rejection is not None
        assert outcome.rejection.hint == f"the job field {name} cannot be updated"
