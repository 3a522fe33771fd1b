"""sacct's question and its table. Source: sacct(1); forms as 22.05 prints them."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.call.entry import call
from spritz.cli.call.options import Fatal
from spritz.cli.listings.acct import conditions
from spritz.cli.listings.acct.listing import RowListing, columns_of
from spritz.cli.sacct import main
from spritz.model.accounting.records import JobPick, JobRecord, StepRecord
from spritz.model.errors import SpritzError
from spritz.model.ids import INFINITE, STEP_BATCH
from spritz.model.states import JobFlag
from spritz.presentation.accounting import accounting_fields as fields
from spritz.presentation.accounting import step_usage as usage
from spritz.presentation.accounting.accounting_row import Row
from spritz.presentation.accounting.accounting_style import Style
from spritz.presentation.table import Table, help_format

#: 2023-11-14T22:13:20 in UTC
NOW = 1_700_000_000.0


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    import time

    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def a_context(**environ: str) -> Context:
    return Context("sacct", environ, "/", io.StringIO(), io.StringIO(), io.StringIO())


def a_job(**values: Any) -> JobRecord:
    given: dict[str, Any] = {
        "number": 9,
        "job_id": 12,
        "name": "a-rather-long-name",
        "user": "ann",
        "uid": 1001,
        "partition": "main",
        "state": "COMPLETED",
        "submitted_at": NOW - 4000,
        "eligible_at": NOW - 4000,
        "started_at": NOW - 3700,
        "ended_at": NOW - 40,
        "nodes": "n[1-2]",
        "node_count": 2,
        "cpus": 8,
        "requested_cpus": 8,
        "requested_nodes": 2,
        "tres_requested": "cpu=8,mem=4G,node=2,billing=8",
        "tres_allocated": "cpu=8,mem=4G,node=2,billing=8",
        "time_limit_minutes": 90,
    }
    return JobRecord(**(given | values))


def a_step(**values: Any) -> StepRecord:
    given: dict[str, Any] = {
        "number": 9,
        "step_id": STEP_BATCH,
        "job_id": 12,
        "name": "batch",
        "state": "COMPLETED",
        "started_at": NOW - 3700,
        "ended_at": NOW - 40,
        "cpus": 4,
        "nodes": "n1",
        "node_count": 1,
        "user_cpu_seconds": 61.5,
        "system_cpu_seconds": 0.25,
        "usage_in_max": "cpu=61750,fs/disk=3145728,mem=10485760,vmem=0",
        "usage_in_max_node": "cpu=n1,fs/disk=n1,mem=n1,vmem=n1",
        "usage_in_ave": "cpu=61750,fs/disk=3145728,mem=10485760,vmem=0",
    }
    return StepRecord(**(given | values))


def shown(columns: str, job: JobRecord, step: StepRecord | None = None, **options: Any) -> str:
    style = Style(options.pop("environ", {}), **options)
    steps = [step] if step is not None else [a_step()]
    row = Row(job, step, steps, NOW, (0.0, 0.0))
    return "|".join(str(column.field.render(row, style)) for column in columns_of(columns))


def test_columns_are_as_wide_as_slurms_and_what_is_cut_ends_in_a_plus() -> None:
    context = a_context()
    listing = RowListing(Table(columns_of(fields.DEFAULT)), Style({}), context)
    listing.header()
    listing.row(Row(a_job(state="CANCELLED", cancelled_by=1001), None, [], NOW, (0.0, 0.0)))
    assert context.stdout.getvalue() == (  # type: ignore[attr-defined]  # a StringIO
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
        "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
        "12           a-rather-+       main                     8 CANCELLED+      0:0 \n"
    )


def test_a_jobs_label_and_the_number_of_its_reservation_are_on_its_own_line() -> None:
    job = a_job(mcs_label="secret", reservation="r1", reservation_id=7)
    assert shown("mcslabel,reservation,reservationid", job) == "secret|r1|7"
    assert shown("mcslabel,reservationid", job, a_step()) == "|"
    assert shown("mcslabel,reservationid", a_job()) == "|"


@pytest.mark.parametrize(
    ("trailing", "delimiter", "line"), [(False, "|", "12|ann\n"), (True, "|", "12|ann|\n"), (False, "::", "12::ann\n")]
)
def test_parsable_forms_cut_nothing(trailing: bool, delimiter: str, line: str) -> None:
    context = a_context()
    table = Table(columns_of("JOBID,User"), 1 if trailing else 2, delimiter)
    RowListing(table, Style({}), context).row(Row(a_job(), None, [], NOW, (0.0, 0.0)))
    assert context.stdout.getvalue() == line  # type: ignore[attr-defined]


def test_a_jobs_line() -> None:
    job = a_job()
    assert shown("elapsed,elapsedraw,cputime,cputimeraw", job) == "01:01:00|3660|08:08:00|29280"
    assert shown("start,end,submit", job) == "2023-11-14T21:11:40|2023-11-14T22:12:40|2023-11-14T21:06:40"
    assert shown("timelimit,timelimitraw,reqmem,planned", job) == "01:30:00|90|4G|00:05:00"
    assert shown("totalcpu,usercpu,systemcpu,maxrss", job) == "01:01.750|01:01.500|00:00.250|"
    assert shown("jobid,jobidraw", a_job(array_job_id=12, array_task_id=3, job_id=15)) == "12_3|15"
    assert shown("jobid", a_job(array_job_id=12, array_tasks="3f0", array_limit=2)) == "12_[4-9%2]"
    assert shown("timelimit", a_job(time_limit_minutes=INFINITE)) == "UNLIMITED"
    assert shown("state", a_job(state="CANCELLED", flags=JobFlag.REQUEUED.value)) == "REQUEUED"
    assert shown("exitcode,derivedexitcode", a_job(exit_status=9, derived_exit_status=3 << 8)) == "0:9|3:0"


def test_a_job_that_never_ran() -> None:
    job = a_job(state="PENDING", started_at=0.0, ended_at=0.0, nodes="", node_count=0, cpus=0, tres_allocated="")
    assert shown("start,end,elapsed,nodelist,alloccpus,nnodes,state", job) == (
        "Unknown|Unknown|00:00:00|None assigned|8|2|PENDING"
    )
    gone = a_job(state="CANCELLED", cancelled_by=0, nodes="", started_at=NOW, ended_at=NOW)
    assert shown("start,state,elapsed", gone) == "None|CANCELLED by 0|00:00:00"


def test_energy_of_a_job_that_ran_is_shown_where_it_was_measured() -> None:
    columns, gone = "consumedenergy,consumedenergyraw", a_job(state="CANCELLED", started_at=NOW, tres_allocated="")
    assert shown(columns, a_job()) == "|"
    assert shown(columns, gone) == "0|0"
    assert shown(columns, a_job(), a_step()) == "0|0"
    measured = Row(a_job(), None, [a_step(usage_in_tot="energy=2000")], NOW, (0.0, 0.0))
    assert usage.energy_text(measured) == "2000"
    batch, numbered = a_step(), a_step(step_id=0)
    assert usage.energy_text(Row(a_job(), None, [batch], NOW, (0.0, 0.0))) == ""
    assert usage.energy_text(Row(a_job(), None, [batch, numbered], NOW, (0.0, 0.0))) == "0"


def test_a_steps_line() -> None:
    assert shown("jobid,jobname,partition,user,timelimit", a_job(), a_step()) == "12.batch|batch|||"
    assert shown("maxrss,maxrssnode,averss,avecpu,maxdiskread", a_job(), a_step()) == "10M|n1|10M|00:01:01|3M"
    assert shown("totalcpu,ncpus,ntasks,nodelist", a_job(), a_step()) == "01:01.750|4|1|n1"
    assert shown("tresusageinmax", a_job(), a_step()) == "cpu=00:01:01,energy=0,fs/disk=3145728,mem=10M,vmem=0"
    assert shown("maxrss,reqmem", a_job(), a_step(), unit="K") == "10240K|"
    assert shown("reqmem", a_job(tres_requested="mem=4096M"), convert=False) == "4096M"


def test_flags_say_what_started_a_job_in_slurms_spelling() -> None:
    assert shown("flags,associd", a_job(scheduler="Backfill", association_id=7)) == "SchedBackfill,StartRecieved|7"
    assert shown("flags,associd", a_job(state="PENDING")) == "StartRecieved|0"
    assert shown("flags,associd", a_job(scheduler="Main", association_id=7), a_step()) == "|7"


def test_times_follow_the_environment() -> None:
    assert shown("end", a_job(), environ={"SLURM_TIME_FORMAT": "%s"}) == str(int(NOW) - 40)
    assert shown("end", a_job(), environ={"SLURM_TIME_FORMAT": "relative"}) == "22:12:40"


def test_every_field_of_helpformat_prints_for_jobs_and_steps() -> None:
    names = help_format(fields.FIELDS).split()
    assert len(names) > 110
    for name in names:
        for job, step in ((a_job(), None), (a_job(), a_step()), (JobRecord(number=1, job_id=1), None)):
            assert isinstance(shown(name, job, step), str)


def test_widths_are_slurms() -> None:
    wanted = "dbindex,maxdiskread,avediskread,maxdiskwritenode,maxpages,maxpagestask,maxvmsizenode,tresusageouttot"
    assert [column.width for column in columns_of(wanted)] == [-10, 12, 14, 16, 8, 14, 14, 15]
    wanted = "qosraw,reason,timelimitraw,flags,admincomment,systemcomment,tresusageinmaxnode,tresusageoutmaxnode"
    assert [column.width for column in columns_of(wanted)] == [6, 22, 10, 19, 15, 15, 18, 19]


def test_spans_of_time_are_never_cut_and_points_in_time_have_no_mark() -> None:
    context = a_context()
    columns = columns_of("elapsed%3,start%10,state%4,cputimeraw%1")
    listing = RowListing(Table(columns), Style({}), context)
    listing.header()
    listing.row(Row(a_job(), None, [], NOW, (0.0, 0.0)))
    heading, _, line = context.stdout.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
    assert (heading, line) == ("Ela      Start Stat C ", "01:01:00 2023-11-14 COM+ 29280 ")


def test_disk_is_in_m_and_goes_to_a_larger_unit_while_nothing_is_lost() -> None:
    def disk(count: int, **options: Any) -> str:
        return shown("maxdiskread", a_job(), a_step(usage_in_max=f"fs/disk={count}"), **options)

    assert [disk(0), disk(60_000), disk(2_097_173_760), disk(2 << 30)] == ["0", "0.06M", "2000.02M", "2G"]
    assert [disk(60_000, unit="G"), disk(2_097_173_760, unit="G")] == ["0.06M", "1.95G"]
    assert shown("tresusageinmax", a_job(), a_step(usage_in_max="fs/disk=59763"), unit="K") == "energy=0,fs/disk=58.36K"


def test_what_22_05_writes_of_clocks_keys_and_qos_by_number() -> None:
    step = a_step(step_id=0)
    for row, words in ((None, "|0|Unknown|Unknown"), (a_step(), "0||0|0"), (step, "0||Unknown|Unknown")):
        assert shown("avecpufreq,wckeyid,reqcpufreq,reqcpufreqgov", a_job(), row) == words
    style = Style({})
    style.qos_numbers = {"normal": 1, "gold": 7}
    (column,) = columns_of("qosraw")
    assert column.field.render(Row(a_job(qos="gold"), None, [], NOW, (0.0, 0.0)), style) == "7"


def test_widths_and_beginnings_of_names() -> None:
    (column,) = columns_of("jobna%-5")
    assert (column.field.header, column.cell("abcdefg"), column.cell("a")) == ("JobName", "abcd+", "a    ")
    for wrong in ("nosuch", "jobid%x", "jobid%"):
        with pytest.raises(SpritzError, match="Invalid field requested"):
            columns_of(wrong)


# -- the question


def question(**given: str) -> conditions.Question:
    return conditions.build(given, "c1", NOW, a_context())


def test_the_window_is_the_manuals() -> None:
    """DEFAULT TIME WINDOW."""
    midnight = NOW - 22 * 3600 - 13 * 60 - 20

    def window(**given: str) -> tuple[float | None, float | None]:
        query = question(**given).query
        return query.starts_at, query.ends_at

    assert window() == (midnight, NOW)
    assert window(starttime="", endtime="") == (midnight, NOW)
    assert window(jobs="1") == (None, NOW)
    assert window(state="R") == (NOW, NOW)
    assert window(jobs="1", state="R") == (None, NOW)
    assert window(state="R", starttime="now-1hour") == (NOW - 3600, NOW - 3600)
    assert window(starttime="2023-11-14", endtime="1114-12:00") == (midnight, midnight + 12 * 3600)
    assert window(starttime="uts1690000000") == (1_690_000_000.0, NOW)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"starttime": "2023-02-30"}, "Invalid time specification"),
        ({"starttime": "now", "endtime": "now-1day"}, "is after end time"),
        ({"uid": "no such user"}, "Invalid user id: no such user"),
        ({"gid": "no such group"}, "Invalid group id: no such group"),
        ({"gid": "9223372036854775808"}, "Invalid group id: 9223372036854775808"),
    ],
)
def test_what_is_wrong_is_said_once(given: dict[str, str], words: str) -> None:
    context = a_context()
    with pytest.raises(AlreadyReported):
        conditions.build(given, "c1", NOW, context)
    assert words in context.stderr.getvalue()  # type: ignore[attr-defined]


def test_jobs_and_steps_are_picked_by_their_names() -> None:
    found = question(jobs="12,13_[2-3],14.batch,14.0,15+1")
    assert found.query.picks == (
        JobPick(12),
        JobPick(13, "c"),
        JobPick(14, "", STEP_BATCH),
        JobPick(14, "", 0),
        JobPick(15, "", None, 1),
    )
    assert found.steps == {14: {STEP_BATCH, 0}}
    assert question(jobs="14,14.0").steps == {}
    for wrong in ("x", "1.", "-3", "1+x"):
        with pytest.raises(Fatal, match="Bad job/step specified"):
            question(jobs=wrong)


def test_the_users_of_a_query() -> None:
    own = () if os.getuid() == 0 else (os.getuid(),)
    assert question().query.users == own
    assert question(allusers="").query.users == question(jobs="1").query.users == ()
    assert question(uid="0,12345").query.users == (0, 12345)
    assert question(clusters="A,b").query.clusters == ("a", "b")
    assert question(allclusters="").query.clusters == question(clusters="all").query.clusters == ()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-s", "XX"], "sacct: fatal: unrecognized job state value 'XX'"),
        (["-B"], "When requesting job scripts you must also request specific jobs with the '-j' option."),
        (["-B", "--env-vars", "-j", "1"], "Options --batch-script and --env-vars are mutually exclusive"),
        (["--units=X"], "sacct: error: Invalid unit type 'X'. Possible options are 'KMGTP'"),
        (["-o", "foo"], 'sacct: error: Invalid field requested: "foo"'),
        (["-o", "jobid,allocgres%20"], "sacct: fatal: AllocGRES has been removed, please use AllocTRES"),
        (["-o", "ReqGRES"], "sacct: fatal: ReqGRES has been removed, please use ReqTRES"),
        (["--nosuch"], "unrecognized option '--nosuch'"),
        (["word"], "sacct: error:  word"),
        (["-N", "n1", "-N", "n2"], "sacct: error: Already asked for nodes 'n1'"),
    ],
)
def test_refusals(argv: list[str], words: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=c1\nAccountingStorageType=accounting_storage/slurmdbd\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    context = a_context()
    assert call(main, argv, context) == 1
    assert words in context.stderr.getvalue()  # type: ignore[attr-defined]


def test_a_cluster_without_accounts_says_so(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=c1\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    context = a_context()
    assert call(main, [], context) == 1
    assert context.stderr.getvalue() == "Slurm accounting storage is disabled\n"  # type: ignore[attr-defined]


def test_jobs_are_chosen_by_what_started_them_and_by_association() -> None:
    asked = question(flags="schedmain,SchedBackfill", associations="3,x").query
    assert (asked.schedulers, asked.associations) == (("Main", "Backfill"), (3, -1))
    assert question(flags="SchedMain,StartRecieved").query.schedulers == ()
    with pytest.raises(SpritzError, match="str_2_job_flags: Invalid job flag bogus"):
        question(flags="bogus")


def test_patterns_in_names_of_files_are_filled_in_when_that_is_asked_for() -> None:
    job = a_job(
        stdout="/w/%x-%A_%4a.out", stderr="/w/%j-%N", stdin="/dev/null", array_job_id=10, array_task_id=3, job_id=12
    )
    assert shown("stdout,stderr,stdin", job) == "/w/%x-%A_%4a.out|/w/%j-%N|/dev/null"
    assert shown("stdout,stderr,stdin", job, expand=True) == ("/w/a-rather-long-name-10_0003.out|/w/12-n1|/dev/null")


def test_the_local_number_of_a_user_is_shown_when_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spritz.presentation.accounting.accounting_fields.uid_of", {"ann": 7}.get)
    assert shown("uid", a_job()) == "1001"
    assert shown("uid", a_job(), local_uid=True) == "7"
    assert shown("uid", a_job(user="gone"), local_uid=True) == "1001"


def test_lists_in_several_parts_are_one_list() -> None:
    """As `sacct -v` of 22.05 tells them: `-s CD -s F` are both, `-o a -o b` too; a time counts as it was said last."""
    found = [("state", "CD"), ("jobs", "1"), ("state", "F"), ("jobs", "2,3"), ("starttime", "a"), ("starttime", "b")]
    given = dict(conditions.gathered([*found, ("format", "jobid"), ("format", "state")], a_context()))
    assert given == {"state": "CD,F", "jobs": "1,2,3", "starttime": "b", "format": "jobid,state"}
