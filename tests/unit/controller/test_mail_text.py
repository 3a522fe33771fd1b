"""Subjects of mails, as slurmctld words them. Source: sbatch(1) --mail-type."""

from __future__ import annotations

import pytest
from msgspec import structs

from spritz.controller.programs.job_facts import job_facts
from spritz.controller.programs.mail_text import end_kind, environment, recipient, subject
from spritz.model.job.record import Job, JobSpec
from spritz.model.states import JobState

JOB = Job(
    id=7,
    spec=JobSpec(name="train", user="ada", mail_types=("BEGIN", "END", "FAIL")),
    submitted_at=100.0,
    started_at=165.0,
    ended_at=165.0 + 3725,
)
DONE = structs.replace(JOB, state=JobState.COMPLETED)
FAILED = structs.replace(JOB, state=JobState.FAILED, exit_status=3 << 8)
KILLED = structs.replace(JOB, state=JobState.OUT_OF_MEMORY, exit_status=9)


@pytest.mark.parametrize(
    ("kind", "job", "expected"),
    [
        ("BEGIN", JOB, "Slurm Job_id=7 Name=train Began, Queued time 00:01:05"),
        ("END", DONE, "Slurm Job_id=7 Name=train Ended, Run time 01:02:05, COMPLETED, ExitCode 0"),
        ("FAIL", FAILED, "Slurm Job_id=7 Name=train Failed, Run time 01:02:05, FAILED, ExitCode 3"),
        ("FAIL", KILLED, "Slurm Job_id=7 Name=train Failed, Run time 01:02:05, OUT_OF_MEMORY"),
        ("TIME_LIMIT_80", JOB, "Slurm Job_id=7 Name=train Reached 80% of time limit, Run time 01:02:05"),
        ("INVALID_DEPEND", JOB, "Slurm Job_id=7 Name=train Invalid dependency"),
    ],
)
def test_subjects_are_slurms(kind: str, job: Job, expected: str) -> None:
    assert subject(kind, job, [job], 0.0, summary=False) == expected


def test_an_array_is_told_of_as_a_whole_or_task_by_task() -> None:
    tasks = [
        structs.replace(DONE, id=number, array_job_id=7, array_task_id=number - 7, exit_status=code << 8)
        for number, code in ((7, 0), (8, 2))
    ]
    whole = subject("END", tasks[0], tasks, 0.0, summary=True)
    assert whole == "Slurm Array Summary Job_id=7_* (7) Name=train Ended, Mixed, ExitCode [0-2]"
    tasks[1] = structs.replace(tasks[1], restart_count=1)
    again = subject("END", tasks[0], tasks, 0.0, summary=True)
    assert again == f"{whole}, with requeued tasks"
    begun = subject("BEGIN", tasks[0], tasks, 0.0, summary=True)
    assert begun == "Slurm Array Summary Job_id=7_* (7) Name=train Began"
    one = subject("END", tasks[1], tasks[1:], 0.0, summary=False)
    assert one == "Slurm Array Task Job_id=7_1 (8) Name=train Ended, Run time 01:02:05, COMPLETED, ExitCode 2"


@pytest.mark.parametrize(
    ("types", "job", "kind"),
    [
        (("END", "FAIL"), DONE, "END"),
        (("END", "FAIL"), FAILED, "FAIL"),
        (("END",), FAILED, "END"),
        (("FAIL",), DONE, ""),
        (("BEGIN",), FAILED, ""),
    ],
)
def test_a_failure_is_told_as_such_where_that_was_asked_for(types: tuple[str, ...], job: Job, kind: str) -> None:
    job = structs.replace(job, spec=structs.replace(job.spec, mail_types=types))
    assert end_kind(job, [job]) == kind


@pytest.mark.parametrize(
    ("mail_user", "domain", "to"),
    [("", "", "ada"), ("", "x.org", "ada@x.org"), ("bob", "x.org", "bob"), ("b@y.org", "x.org", "b@y.org")],
)
def test_mail_goes_to_mail_user_or_the_submitter(mail_user: str, domain: str, to: str) -> None:
    job = structs.replace(JOB, spec=structs.replace(JOB.spec, mail_user=mail_user))
    assert recipient(job, domain) == to


def test_the_program_learns_the_codes_and_times_from_its_environment() -> None:
    found = environment("FAIL", FAILED, [FAILED], 0.0, job_facts(FAILED, (), "c", "/slurm.conf"))
    assert found["SLURM_CLUSTER_NAME"] == "c"
    assert found["SLURM_JOB_EXIT_CODE2"] == "3:0"
    assert found["SLURM_JOB_RESTART_COUNT"] == "0"
    assert not {"SLURM_JOB_STDOUT", "SLURM_SCRIPT_CONTEXT"} & set(found)
    assert found["SLURM_JOB_EXIT_CODE_MAX"] == "3"
    assert found["SLURM_JOB_RUN_TIME"] == "01:02:05"
    assert found["SLURM_JOB_MAIL_TYPE"] == "Failed"


def test_a_name_cannot_add_lines_to_the_subject() -> None:
    job = structs.replace(JOB, spec=structs.replace(JOB.spec, name="a\nBcc: x"))
    assert "\n" not in subject("BEGIN", job, [job], 0.0, summary=False)
