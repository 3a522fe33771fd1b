"""sacct --completion and --file. Source: sacct(1); tables as 22.05 prints them from the same file."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.cli.call.context import Context
from spritz.cli.call.entry import call
from spritz.cli.sacct import main

#: As 22.05 and newer releases write them; the third's name holds what looks like keys.
LOG = """\
JobId=5 UserId=root(0) GroupId=root(0) Name=hostname JobState=COMPLETED Partition=main TimeLimit=UNLIMITED \
StartTime=2023-11-21T20:33:01 EndTime=2023-11-21T20:33:02 NodeList=n1 NodeCnt=1 ProcCnt=1 WorkDir=/root \
ReservationName= Tres=cpu=1,node=1,billing=1 Account= QOS= WcKey= Cluster=c SubmitTime=2023-11-21T20:33:00 \
EligibleTime=2023-11-21T20:33:00 DerivedExitCode=0:0 ExitCode=0:0 \n\
JobId=6 UserId=ann(4001) GroupId=staff(50) Name=abc JobState=FAILED Partition=main TimeLimit=10 \
StartTime=2023-11-22T01:33:01 EndTime=2023-11-22T02:33:02 NodeList=n[1-4] NodeCnt=4 ProcCnt=8 WorkDir=/tmp \
ReservationName= Gres= Account=acc QOS=normal WcKey=w Cluster=c SubmitTime=2023-11-22T01:33:00 \
EligibleTime=2023-11-22T01:33:00 DerivedExitCode=0:0 ExitCode=2:9 \n\
JobId=9 UserId=ann(4001) GroupId=staff(50) Name=a b UserId=x(1) JobState=TIMEOUT Partition=gpu \
TimeLimit=Partition_Limit StartTime=Unknown EndTime=2023-11-23T02:33:02 NodeList=(null) NodeCnt=0 ProcCnt=0 \
WorkDir=/my dir ReservationName= Tres=cpu=8 Account=acc QOS=normal WcKey= Cluster=c \
SubmitTime=2023-11-22T01:33:00 EligibleTime=unknown ArrayJobId=7 ArrayTaskId=3 DerivedExitCode=0:0 ExitCode=1:0 \n\
"""

DEFAULT = """\
JobID           UID    JobName  Partition   NNodes        NodeList      State                 End 
------------ ------ ---------- ---------- -------- --------------- ---------- ------------------- 
5                 0   hostname       main        1              n1  COMPLETED 2023-11-21T20:33:02 
6              4001        abc       main        4          n[1-4]     FAILED 2023-11-22T02:33:02 
7_3            4001 a b UserI+        gpu        0   None assigned    TIMEOUT 2023-11-23T02:33:02 
"""  # noqa: W291 - columns are padded


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text(LOG)
    return path


def ran(*words: object, cwd: str = "/") -> tuple[int, str, str]:
    context = Context("sacct", {}, cwd, io.StringIO(), io.StringIO(), io.StringIO())
    code = call(main, list(map(str, words)), context)
    assert isinstance(context.stdout, io.StringIO)
    assert isinstance(context.stderr, io.StringIO)
    return code, context.stdout.getvalue(), context.stderr.getvalue()


def numbers(log: Path, *words: str) -> list[str]:
    code, out, err = ran("-f", log, "-n", "-P", "-o", "jobidraw", *words)
    assert (code, err) == (0, "")
    return out.split()


def test_the_log_is_shown_as_slurm_shows_it_to_any_user_at_any_time(log: Path) -> None:
    assert ran("-f", log) == (0, DEFAULT, "")
    assert ran("-f", "log", "-b", "-P", cwd=str(log.parent))[1].splitlines()[:2] == ["JobID|UID|State", "5|0|COMPLETED"]
    assert ran("-c", "-f", log, "-l", "-P", "-j", 5)[1].splitlines() == [
        "JobID|UID|JobName|Partition|NNodes|NodeList|State|Start|End|Timelimit",
        "5|0|hostname|main|1|n1|COMPLETED|2023-11-21T20:33:01|2023-11-21T20:33:02|UNLIMITED",
    ]


def test_fields_that_the_log_has_are_shown_and_blanks_in_values_stay(log: Path) -> None:
    fields = "jobname,workdir,user,group,account,elapsed,exitcode,alloctres,timelimitraw"
    assert ran("-f", log, "-n", "-P", "-o", fields)[1].splitlines() == [
        "hostname|/root|root|root||00:00:01|0:0|billing=1,cpu=1,node=1|UNLIMITED",
        "abc|/tmp|ann|staff|acc|01:00:01|2:9||10",
        "a b UserId=x(1)|/my dir|ann|staff|acc|00:00:00|1:0|cpu=8|Partition_Limit",
    ]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("-j", "6"), ["6"]),
        (("-j", "6.0,5"), ["5", "6"]),
        (("-j", "7_3"), ["9"]),
        (("-j", "7_4"), []),
        (("-u", "4001"), ["6", "9"]),
        (("-u", "4001", "-a"), ["5", "6", "9"]),
        (("-g", "50", "-r", "gpu"), ["9"]),
        (("-A", "ACC", "-W", "w"), ["6"]),
        (("-s", "F,TO"), ["6", "9"]),
        (("-N", "n3"), ["6"]),
        (("-S", "2023-11-22T02:33:02"), ["6", "9"]),
        (("-S", "2023-11-22", "-E", "2023-11-22T12:00"), ["6"]),
        (("-M", "other"), []),
    ],
)
def test_conditions_hold(log: Path, words: tuple[str, ...], found: list[str]) -> None:
    assert numbers(log, *words) == found


@pytest.mark.parametrize("option", ["--json", "--batch-script", "--ncpus=1", "--reason=Priority", "--truncate"])
def test_what_the_log_cannot_answer_is_refused_by_name(log: Path, option: str) -> None:
    code, out, err = ran("-f", log, "-j", "5", option)
    assert (code, out) == (1, "")
    assert f"{option.partition('=')[0]} is not supported with job completion records" in err


def test_damaged_lines_are_told_and_the_others_shown(log: Path) -> None:
    """22.05 dies of them."""
    log.write_bytes(b"\xff garbage\n\n" + LOG.encode() + b"JobId=8\nJobId=10 UserId=ann(4001) Job")
    code, out, err = ran("-f", log, "-n", "-P", "-o", "jobidraw")
    assert (code, out.split()) == (1, ["5", "6", "9"])
    assert [line.partition(": line ")[2] for line in err.splitlines()] == [
        f"{number} is no job completion record" for number in (1, 6, 7)
    ]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    code, out, err = ran("-f", tmp_path / "none")
    assert (code, out) == (1, "")
    assert "is not a valid file" in err


@pytest.mark.parametrize(
    ("settings", "code", "told"),
    [
        ("", 1, "Slurm job completion is disabled"),
        ("JobCompType=jobcomp/elasticsearch\nJobCompLoc=http://h\n", 1, "keeps no file of records"),
        ("JobCompType=jobcomp/filetxt\nJobCompLoc={log}\n", 0, ""),
    ],
)
def test_the_log_is_found_by_slurm_conf(
    log: Path, monkeypatch: pytest.MonkeyPatch, settings: str, code: int, told: str
) -> None:
    path = log.parent / "slurm.conf"
    path.write_text("ClusterName=c\nSlurmctldHost=localhost\n" + settings.format(log=log))
    monkeypatch.setenv("SLURM_CONF", str(path))
    found = ran("-c")
    assert found[0] == code
    assert told in found[2]
    assert (found[1] == DEFAULT) == (code == 0)
