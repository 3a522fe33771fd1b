"""What users called their jobs cannot pass for lines of a command's output."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.cli import scontrol, sinfo, squeue
from spritz.cli.local.questions.history import text_lines
from spritz.model.accounting.records import JobHistory, JobRecord, StepRecord
from spritz.notation.oneline import one_line
from spritz.presentation.table import Table, TableColumn, TableField
from tests.unit.cli.site import Site

HOSTILE = "a\n   JobState=FAILED\rb\x0bc\u2028d\\n"
WRITTEN = "a\\n   JobState=FAILED\\rb\\x0bc\\u2028d\\n"


@pytest.fixture
def hostile(site: Site) -> Site:
    """A running job, a node and a reservation with hostile texts."""
    job = site.running("n1", name=HOSTILE, comment=HOSTILE, extra=HOSTILE, work_dir=f"/tmp/{HOSTILE}")
    reservation = ["reservationname=r", "starttime=now", "duration=9", "users=root", "nodes=n3"]
    for words in (
        ["update", f"jobid={job}", f"admincomment={HOSTILE}"],
        ["update", "nodename=n2", "state=drain", f"reason={HOSTILE}", f"comment={HOSTILE}", f"extra={HOSTILE}"],
        ["create", *reservation, f"comment={HOSTILE}"],
    ):
        ran = site.run(scontrol.main, *words)
        assert ran.status == 0, ran.err
    return site


def without_line_ends(text: str) -> None:
    assert WRITTEN in text
    assert text.split("\n") == text.splitlines() + [""] * text.endswith("\n")
    assert not [line for line in text.splitlines() if line.strip() == "JobState=FAILED"]


@pytest.mark.parametrize("entity", ["job", "node", "reservation"])
def test_records_of_scontrol(hostile: Site, entity: str) -> None:
    text = hostile.run(scontrol.main, "show", entity).out
    without_line_ends(text)
    for line in hostile.run(scontrol.main, "-o", "show", entity).lines:
        assert line.startswith(("JobId=", "NodeName=", "ReservationName="))


def test_listings(hostile: Site) -> None:
    ran = hostile.run(squeue.main, "-h", "-o", "%i|%j|%k|%Z")
    without_line_ends(ran.out)
    assert len(ran.lines) == 1
    assert hostile.run(squeue.main, "-h", "-O", "name:4,jobid").out.startswith("a\\n ")
    ran = hostile.run(sinfo.main, "-h", "-n", "n2", "-N", "-o", "%N|%E")
    without_line_ends(ran.out)
    assert len(ran.lines) == 1


def test_the_callers_own_format_may_hold_newlines(hostile: Site) -> None:
    assert hostile.run(squeue.main, "-h", "-o", "%i\n%T\n").out == "1\nRUNNING\n\n"


@pytest.mark.parametrize("parsable", [0, 1, 2])
def test_tables(parsable: int) -> None:
    table = Table([TableColumn(TableField("Comment", 60, lambda text: text), 60)], parsable)
    without_line_ends(table.row(HOSTILE))


def test_a_jobs_history() -> None:
    job = JobRecord(number=1, job_id=12, name=HOSTILE, user="ann", state="RUNNING", started_at=1.0, nodes="n1")
    step = StepRecord(
        number=1, step_id=0, job_id=12, name=HOSTILE, state="RUNNING", tasks=1, nodes="n1", started_at=2.0
    )
    life = JobHistory(job=job, steps=[step], reasons=[], suspensions=[])
    without_line_ends("".join(line + "\n" for line in text_lines(life, 3.0)))


def test_json_has_the_text_exactly(hostile: Site) -> None:
    (job,) = json.loads(hostile.run(squeue.main, "--json").out)["jobs"]
    assert (job["name"], job["comment"]) == (HOSTILE, HOSTILE)


@given(st.text())
def test_any_text_stays_in_its_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
    if text.isprintable():
        assert one_line(text) == text
