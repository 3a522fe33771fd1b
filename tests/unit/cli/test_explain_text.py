"""How an explanation looks: plain lines of the width asked for, colour only where it is wanted."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from spritz.model.queries.explain import (
    Ahead,
    AheadJob,
    Alternative,
    Blocker,
    Expected,
    Explanation,
    Limit,
    NodeTest,
    PartitionView,
)
from spritz.presentation.explain_text import explanation_text

#: Sunday noon in UTC
NOW = 1_000_000_000.0 // 86_400 * 86_400 + 43_200

WAITING = Explanation(
    job="12",
    job_id=12,
    name="train",
    user="alice",
    state="PENDING",
    verdict="waits",
    summary="2 jobs want the same nodes and go first; GPUs are short.",
    reason="Priority",
    partition="gpu",
    asks=("2 nodes", "1 task a node of 16 CPUs", "64 GB a node", "4 h100 GPUs a node", "for 04:00:00"),
    partitions=(
        PartitionView(
            partition="gpu",
            total=10,
            nodes_needed=2,
            able=1,
            tests=(
                NodeTest(test="partition", count=2, nodes="cpu[1-2]", text="not in partition gpu"),
                NodeTest(test="state", count=1, nodes="g8", text="drained: bad fan"),
                NodeTest(
                    test="busy",
                    count=6,
                    nodes="g[1-6]",
                    text="h100 GPUs in use (4 needed, at most 2 free)",
                    what=("gres/gpu:h100",),
                    needed=4,
                    most=2,
                ),
                NodeTest(test="able", count=1, nodes="g7", text="can take a part of it now"),
            ),
        ),
    ),
    limits=(
        Limit(kind="Licenses", subject="lab", text="1 asked for, 2 of 4 free: bob has 2", asked=1, used=2, limit=4),
    ),
    blockers=(
        Blocker(job="7", user="bob", ends_at=NOW + 600, nodes="g1", holds="4 h100 GPUs, 8 CPUs"),
        Blocker(job="8_3", user="carol", ends_at=NOW - 5, nodes="g2", holds="2 h100 GPUs", state="completing"),
    ),
    ahead=Ahead(
        count=2,
        priority=940,
        users=(("bob", 1), ("carol", 1)),
        first=(
            AheadJob(
                job="9", user="bob", partition="gpu", priority=1520, because="fair share +600", start_at=NOW + 90_000
            ),
            AheadJob(job="10", user="carol", partition="gpu", priority=940, because="submitted earlier"),
        ),
    ),
    expected=Expected(sure="promise", text="at the latest", start_at=NOW + 4_000, nodes="g[1,7]"),
    alternatives=(
        Alternative(change="1 node (--nodes=1)", start_at=NOW, now=True, update="JobId=12 NumNodes=1-1"),
        Alternative(change="2 h100 GPUs a node (--gpus-per-node=h100:2)", start_at=NOW + 600),
    ),
    tried=9,
)


@pytest.fixture(autouse=True)
def in_greenwich() -> Iterator[None]:
    """Times of day are local."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def text(width: int = 80, colour: bool = False, **changes: Any) -> str:
    return explanation_text(structs.replace(WAITING, **changes), NOW, width, colour)


def test_a_waiting_job_in_eighty_columns() -> None:
    assert text() == (
        "Job 12 (train) of alice waits: Priority\n"
        "  2 jobs want the same nodes and go first; GPUs are short.\n"
        "\n"
        "Asks for  2 nodes, 1 task a node of 16 CPUs, 64 GB a node, 4 h100 GPUs a node,\n"
        "          for 04:00:00\n"
        "Starts    by 13:06:40 (in 1 h 6 min) on g[1,7]: at the latest\n"
        "Nodes     1 of 10 can serve now, 2 are needed\n"
        "            2  not in partition gpu: cpu[1-2]\n"
        "            1  drained: bad fan: g8\n"
        "            6  h100 GPUs in use (4 needed, at most 2 free): g[1-6]\n"
        "            1  can take a part of it now: g7\n"
        "Limits    Licenses lab: 1 asked for, 2 of 4 free: bob has 2\n"
        "Must end  2 jobs, the last by 12:10:00 (in 10 min), once those ahead are served\n"
        "            JOB  USER   BY        IN      NODES  HOLDS\n"
        "              7  bob    12:10:00  10 min  g1     4 h100 GPUs, 8 CPUs\n"
        "            8_3  carol  11:59:55  due     g2     2 h100 GPUs (completing)\n"
        "Ahead     2 jobs (bob 1, carol 1); this job's priority is 940\n"
        "            JOB  USER   PRIORITY  STARTS               BECAUSE\n"
        "              9  bob        1520  2001-09-10T13:00:00  fair share +600\n"
        "             10  carol       940  -                    submitted earlier\n"
        "Sooner    now       with 1 node (--nodes=1)\n"
        "                      scontrol update JobId=12 NumNodes=1-1\n"
        "          12:10:00  with 2 h100 GPUs a node (--gpus-per-node=h100:2)\n"
    )


@pytest.mark.parametrize("width", [60, 72, 80, 100, 140])
def test_no_line_is_wider_than_asked(width: int) -> None:
    nodes = ",".join(f"g{number}" for number in range(1, 400, 3))
    crowded = structs.replace(WAITING.partitions[0].tests[1], nodes=nodes, text="drained: " + "bad fan " * 20)
    view = structs.replace(WAITING.partitions[0], tests=(crowded,))
    lines = text(width, partitions=(view,)).splitlines()
    assert max(map(len, lines)) <= width


def test_colour_changes_nothing_but_colour() -> None:
    coloured = text(colour=True)
    assert "\033[" in coloured
    assert re.sub(r"\033\[\d+m", "", coloured) == text()
    assert "\033" not in text()


def test_a_long_list_of_blocking_jobs_is_cut_and_counted() -> None:
    many = tuple(structs.replace(WAITING.blockers[0], job=str(number)) for number in range(100, 130))
    shown = text(blockers=many)
    assert "30 jobs, the last by" in shown
    assert "and 20 more" in shown


def test_a_job_with_no_job_ahead_and_no_sooner_start() -> None:
    shown = text(ahead=Ahead(), alternatives=(), blockers=(), tried=3)
    assert "Ahead" not in shown
    assert "Must end" not in shown
    assert "Sooner    none of 3 other requests that were tried would start sooner\n" in shown


def test_a_limit_that_holds_the_job_is_marked() -> None:
    limit = structs.replace(WAITING.limits[0], holds=True)
    assert "Limits    holds it: Licenses lab: 1 asked for" in text(limits=(limit,))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"verdict": "runs", "state": "RUNNING", "started_at": NOW - 60, "ends_at": NOW + 60, "nodes": "g1"},
            "running: since 11:59:00 on g1, until 12:01:00 (in 1 min) at the latest",
        ),
        (
            {"verdict": "ended", "state": "COMPLETED", "started_at": NOW - 60, "ends_at": NOW, "nodes": "g1"},
            "has ended: COMPLETED at 12:00:00 after 1 min on g1",
        ),
        ({"verdict": "ended", "state": "CANCELLED"}, "never ran: CANCELLED"),
        ({"verdict": "never", "reason": "BadConstraints"}, "cannot start as things are: BadConstraints"),
        ({"verdict": "starts"}, "starts now"),
    ],
)
def test_the_first_line_of_other_jobs(changes: dict[str, Any], line: str) -> None:
    told = {"summary": "", "reason": "", **changes}
    assert text(140, **told).splitlines()[0] == f"Job 12 (train) of alice {line}"


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        (Limit(kind="Held", subject="user", text="held: ask", holds=True), "Limits    holds it: held: ask\n"),
        (
            Limit(kind="Dependency", subject="7", text="job 7 has to end; it is RUNNING", holds=True, at=NOW + 60),
            "Limits    holds it: job 7 has to end; it is RUNNING, until 12:01:00 (in 1 min)\n          at the latest\n",
        ),
        (
            Limit(kind="MaxNodes", subject="gpu", text="2 nodes asked for, partition gpu allows 4 a job"),
            "Limits    MaxNodes: 2 nodes asked for, partition gpu allows 4 a job\n",
        ),
    ],
)
def test_limits_are_told_in_words(limit: Limit, line: str) -> None:
    assert line in text(limits=(limit,))
    assert "\033[33mholds it:\033[0m" in text(limits=(structs.replace(limit, holds=True),), colour=True)
