"""sdiag: its lines, orders and JSON. The layout is that of Slurm 22.05."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

import spritz.model
from spritz.cli import sdiag
from spritz.client.channel.handling import Call
from spritz.client.locate import controller_socket_name
from spritz.model.accounting.accounting_admin import CallCount
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.queries.diagnostics import CycleCounts, Diagnostics, GetDiagnostics, ResetDiagnostics
from spritz.model.rejection import Rejection
from spritz.presentation.request_kinds import KINDS
from tests.unit.cli.site import PORT, Ran, Site
from tests.unit.client.conversation import serving

FIGURES = Diagnostics(
    now=1_795_315_483.0,
    since=1_795_312_923.0,
    pending={"GetDiagnostics": 1},
    unsent_events=3,
    jobs_submitted=9,
    jobs_started=8,
    jobs_completed=7,
    jobs_cancelled=1,
    jobs_failed=2,
    jobs_pending=4,
    jobs_running=5,
    quick=CycleCounts(count=54, last_at=1.0, last=16, longest=807, total=2322, depth_total=108, queue=6),
    full=CycleCounts(
        count=2, last_at=1_795_315_469.0, last=1471, longest=1500, total=2971, depth=9, depth_total=10, tried=5,
        tried_total=8, queue=9, queue_total=12,
    ),
    backfilled=4,
    backfilled_since=3,
    clock_latency=28,
    kinds=[CallCount("ListJobs", 2, 688), CallCount("SubmitJob", 8, 5926), CallCount("WatchEvents", 1, 90_000)],
    users=[CallCount("0", 11, 96_614)],
)  # fmt: skip


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ran]]:
    """Runs sdiag against a controller with these figures, in UTC; only root resets them."""
    root = True

    def reset(request: ResetDiagnostics, call: Call) -> Done:
        if not root:
            raise SpritzError(Rejection(code="ESLURM_ACCESS_DENIED").text, code="ESLURM_ACCESS_DENIED")
        return Done()

    site = Site(tmp_path)
    name = f"sdiag{os.getpid()}"
    user = "root" if os.getuid() == 0 else str(os.getuid())
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"ClusterName={name}\nSlurmctldHost=localhost\nSlurmctldPort={PORT}\nSlurmUser={user}\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    def run(*words: str, as_root: bool = True) -> Ran:
        nonlocal root
        root = as_root
        return site.run(sdiag.main, *words)

    table = {GetDiagnostics: lambda request, call: FIGURES, ResetDiagnostics: reset}
    with serving(table, controller_socket_name(name, PORT)):
        yield run
    monkeypatch.undo()
    time.tzset()


def test_contained_failures_are_shown_where_there_are_any(
    asked: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Contained" not in asked().out
    found = structs.replace(FIGURES, failures={"listener.mail": 2, "outbox": 1})
    monkeypatch.setitem(globals(), "FIGURES", found)
    assert "Contained failures:   listener.mail 2, outbox 1\n" in asked().out


def test_lines_are_those_of_slurm(asked: Callable[..., Ran]) -> None:
    lines = asked().lines
    assert lines[:3] == [
        "*" * 55,
        "sdiag output at Sun Nov 22 02:44:43 2026 (1795315483)",
        "Data since      Sun Nov 22 02:02:03 2026 (1795312923)",
    ]
    wanted = """\
Server thread count:  1
DBD Agent queue size: 3
Jobs submitted: 9
Jobs started:   8
Jobs completed: 7
Jobs canceled:  1
Jobs failed:    2
Job states ts:  Sun Nov 22 02:44:43 2026 (1795315483)
Jobs pending:   4
Jobs running:   5
Main schedule statistics (microseconds):
\tLast cycle:   16
\tMax cycle:    807
\tTotal cycles: 54
\tMean cycle:   43
\tMean depth cycle:  2
\tCycles per minute: 1
\tLast queue length: 6
Backfilling stats
\tTotal backfilled jobs (since last slurm start): 4
\tTotal backfilled jobs (since last stats cycle start): 3
\tTotal backfilled heterogeneous job components: 0
\tTotal cycles: 2
\tLast cycle when: Sun Nov 22 02:44:29 2026 (1795315469)
\tLast cycle: 1471
\tMax cycle:  1500
\tMean cycle: 1485
\tLast depth cycle: 9
\tLast depth cycle (try sched): 5
\tDepth Mean: 5
\tDepth Mean (try depth): 4
\tLast queue length: 9
\tQueue length mean: 6
\tLast table size: 0
\tMean table size: 0
Latency for 1000 calls to gettimeofday(): 28 microseconds
Remote Procedure Call statistics by message type
\tREQUEST_SUBMIT_BATCH_JOB                ( 4003) count:8      ave_time:740    total_time:5926
\tREQUEST_JOB_INFO                        ( 2003) count:2      ave_time:344    total_time:688
\tWatchEvents                             (    0) count:1      ave_time:90000  total_time:90000
Remote Procedure Call statistics by user
\troot            (       0) count:11     ave_time:8783   total_time:96614
Pending RPC statistics
\tNo pending RPCs""".splitlines()
    assert [line for line in lines[4:] if line and not line.startswith("Agent")] == wanted


def test_connections_and_the_limits_that_they_met_come_before_the_requests(
    asked: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = structs.replace(FIGURES, connections={"connections": 12, "connection.refused": 3})
    monkeypatch.setattr("tests.unit.cli.test_sdiag.FIGURES", counted)
    lines = asked().lines
    first = lines.index("Connections (Spritz)")
    assert lines[first + 1].split() == ["connections", "12"]
    assert lines[first + 2].split() == ["connection.refused", "3"]
    assert lines[first + 4] == "Remote Procedure Call statistics by message type"


@pytest.mark.parametrize(
    ("option", "order"),
    [
        ("-a", ["REQUEST_SUBMIT_BATCH_JOB", "REQUEST_JOB_INFO", "WatchEvents"]),
        ("-i", ["WatchEvents", "REQUEST_JOB_INFO", "REQUEST_SUBMIT_BATCH_JOB"]),
        ("-t", ["WatchEvents", "REQUEST_SUBMIT_BATCH_JOB", "REQUEST_JOB_INFO"]),
        ("--sort-by-time2", ["WatchEvents", "REQUEST_SUBMIT_BATCH_JOB", "REQUEST_JOB_INFO"]),
    ],
)
def test_requests_are_sorted_as_asked(asked: Callable[..., Ran], option: str, order: list[str]) -> None:
    lines = asked(option).lines
    first = lines.index("Remote Procedure Call statistics by message type") + 1
    assert [line.split("(")[0].strip() for line in lines[first : first + 3]] == order


def test_only_root_resets_counters(asked: Callable[..., Ran]) -> None:
    done = asked("-r")
    assert (done.status, done.out) == (0, "Reset scheduling statistics\n")
    denied = asked("-r", as_root=False)
    assert (denied.status, denied.out) == (1, "")
    assert denied.err == "slurm_reset_statistics: Access/permission denied\n"


def test_another_cluster_is_unknown(asked: Callable[..., Ran]) -> None:
    done = asked("-M", "nosuch")
    assert done.status == 1
    assert done.err.splitlines()[0] == "sdiag: error: Problem talking to database"


def test_json_has_the_names_of_slurms_specification(asked: Callable[..., Ran]) -> None:
    found = json.loads(asked("--json").out)["statistics"]
    assert found["jobs_canceled"] == 1
    assert found["schedule_cycle_mean"] == 43
    assert found["bf_when_last_cycle"] == {"set": True, "infinite": False, "number": 1_795_315_469}
    assert found["rpcs_by_message_type"][0]["message_type"] == "REQUEST_SUBMIT_BATCH_JOB"
    assert found["rpcs_by_user"][0] == {
        "user_id": 0,
        "user": "root",
        "count": 11,
        "queued": 0,
        "dropped": 0,
        "cycle_last": 0,
        "cycle_max": 0,
        "total_time": 96_614,
        "average_time": {"set": True, "infinite": False, "number": 8783},
    }


def test_every_request_that_has_slurms_name_is_one_of_ours() -> None:
    names: set[str] = set()
    for found in pkgutil.walk_packages(spritz.model.__path__, "spritz.model."):
        names |= set(vars(importlib.import_module(found.name)))
    assert set(KINDS) <= names
