"""Job and step ids: squeue(1) --jobs, --steps; scancel(1)."""

from __future__ import annotations

import pytest

from spritz.notation import jobid
from spritz.notation.jobid import STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE, JobIdError, JobReference


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("123", JobReference(123)),
        (" 123 ", JobReference(123)),
        ("123_4", JobReference(123, 1 << 4)),
        ("123_[1-5,7]", JobReference(123, 0b1011_1110)),
        ("123_[3-5%2]", JobReference(123, 0b111000, throttle=2)),
        ("123_*", JobReference(123)),
        ("123+1", JobReference(123, component=1)),
        ("123+0", JobReference(123, component=0)),
        ("123.0", JobReference(123, step=0)),
        ("123+1.2", JobReference(123, component=1, step=2)),
        ("123_4.batch", JobReference(123, 1 << 4, step=STEP_BATCH)),
        ("123.extern", JobReference(123, step=STEP_EXTERN)),
        ("123.interactive", JobReference(123, step=STEP_INTERACTIVE)),
    ],
)
def test_reads_ids(text: str, reference: JobReference) -> None:
    assert jobid.parse(text) == reference


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "x",
        "-1",
        "1_",
        "1_x",
        "1_[",
        "1_[]",
        "1_[5-1]",
        "1_1,2",
        "1_1%2",
        "1+",
        "1+x",
        "1.",
        "1.x",
        "1.-1",
        "1_2_3",
        "1 2",
        "4294967295",
        "\udcff",
        "١",
        "foo",
        "1.0.0",
        "1_2+3",
    ],
)
def test_refuses_what_is_no_id(text: str) -> None:
    with pytest.raises(JobIdError, match="Invalid job id specified"):
        jobid.parse(text)


def test_lists_divide_at_commas_outside_brackets() -> None:
    references = jobid.parse_list("1,2_[1,3-5%2],4.batch")
    assert [jobid.format(reference) for reference in references] == ["1", "2_[1,3-5%2]", "4.batch"]
    for text in ("", "1,", "1,,2", "1_[1,2"):
        with pytest.raises(JobIdError):
            jobid.parse_list(text)


def test_one_task_is_named_by_its_number() -> None:
    assert jobid.parse("7_12").task_id == 12
    assert jobid.parse("7_[12]").task_id == 12
    assert jobid.parse("7_[1-2]").task_id is None
    assert jobid.parse("7").task_id is None


def test_prints_ids_as_squeue_does() -> None:
    assert jobid.format_job(7, 1 << 4) == "7_4"
    assert jobid.format_job(7, component=2) == "7+2"
    assert jobid.format_pending(7, 1 << 4) == "7_[4]"
    assert jobid.format_pending(7, 0b1110, 2) == "7_[1-3%2]"
    assert jobid.format(JobReference(7, step=STEP_EXTERN)) == "7.extern"
    assert jobid.step_name(3) == "3"
