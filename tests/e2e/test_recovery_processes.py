"""No process of a job is left behind, whatever it does; and all that it wrote is there.

Source: sbatch(1), scancel(1), slurm.conf(5) KillWait.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.commands.job import SubmitJob
from spritz.model.states import JobState
from tests.e2e.cluster import Cluster, processes_with, until

DAEMONIZE = """#!/usr/bin/python3
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        for fd in (0, 1, 2):
            os.close(fd)
        if "clean" in sys.argv:
            os.execve("/bin/sleep", ["sleep", "1000"], {"MARK": os.environ["MARK"]})
        time.sleep(1000)
    os._exit(0)
os.wait()
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    cluster = Cluster(nodes=1, cpus=16)
    try:
        program = cluster.work / "daemonize"
        program.write_text(DAEMONIZE)
        program.chmod(0o755)
        yield cluster.start()
    finally:
        cluster.close()


def marked(site: Cluster, script: str) -> tuple[SubmitJob, str]:
    """A request whose processes can be found by a variable of their own, even those that drop the others."""
    mark = f"MARK=spritz-{os.getpid()}-{time.monotonic_ns()}"
    request = site.request(f"export {mark}\n{script}")
    return request, mark


def submit(site: Cluster, script: str) -> tuple[int, str]:
    from spritz.model.commands.job import JobSubmitted

    request, mark = marked(site, script)
    return site.call(request, JobSubmitted).job_id, mark


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000 &",
        "nohup sleep 1000 > /dev/null 2>&1 &\ndisown 2>/dev/null || true",
        "setsid sleep 1000 &\nsetsid setsid sleep 1000 &",
        "./daemonize",
        "./daemonize clean",
        "(trap '' TERM HUP INT; sleep 1000 & wait) &",
        "sh -c 'kill -STOP $$' &\nsleep 0.1",
        "for i in 1 2 3 4 5 6 7 8 9 10; do ./daemonize & done; wait",
        "sh -c 'while :; do (sleep 0.01 &) ; done' &",
        "mkfifo f$$; (cat < f$$) & (exec 9> f$$; sleep 1000) &",
    ],
)
@pytest.mark.parametrize("end", ["by itself", "cancelled"])
def test_whatever_a_script_leaves_running_ends_with_it(site: Cluster, script: str, end: str) -> None:
    number, mark = submit(
        site, f"{script}\nsleep 0.1\ntouch up-$SLURM_JOB_ID\n" + ("sleep 1000" if end != "by itself" else "")
    )
    until((site.work / f"up-{number}").exists, "the script has come so far")
    if end == "cancelled":
        assert processes_with(mark)
        site.cancel(number)
    job = site.wait_state(number, "COMPLETED", "CANCELLED")
    assert job.state is (JobState.CANCELLED if end == "cancelled" else JobState.COMPLETED)
    # At once: a job that is told to be over has nothing left.
    assert processes_with(mark) == []


def test_processes_that_ignore_term_get_killwait_and_no_more(site: Cluster) -> None:
    number, mark = submit(site, "trap '' TERM; touch up-$SLURM_JOB_ID; while :; do sleep 0.05; done")
    until((site.work / f"up-{number}").exists, "the script has come so far")
    started_at = time.monotonic()
    site.cancel(number)
    site.wait_state(number, "CANCELLED")
    assert time.monotonic() - started_at > 0.9, "KillWait is 1 second"
    assert processes_with(mark) == []


def test_a_stopped_script_can_be_cancelled(site: Cluster) -> None:
    number, mark = submit(site, "touch up-$SLURM_JOB_ID; kill -STOP $$; sleep 1000")
    until((site.work / f"up-{number}").exists, "the script has come so far")
    site.cancel(number)
    site.wait_state(number, "CANCELLED")
    assert processes_with(mark) == []


def test_a_fork_bomb_is_brought_down(site: Cluster) -> None:
    number, mark = submit(
        site,
        "ulimit -u 400 2>/dev/null; touch up-$SLURM_JOB_ID\n"
        "b() { n=$1; [ $n -gt 6 ] && exec sleep 1000; b $((n+1)) & b $((n+1)) & wait; }\nb 0",
    )
    until((site.work / f"up-{number}").exists, "the script has come so far")
    until(lambda: len(processes_with(mark)) > 60, "it is under way")
    site.cancel(number)
    site.wait_state(number, "CANCELLED")
    assert processes_with(mark) == []


def out(site: Cluster, number: int) -> bytes:
    return Path(site.work / f"slurm-{number}.out").read_bytes()


def test_output_is_complete_when_the_job_is_told_to_be_over(site: Cluster) -> None:
    program = "import os; os.write(1, bytes(range(256)) * 4096 + b'no newline at the end')"
    number = site.submit(f'python3 -c "{program}"')
    site.wait_state(number, "COMPLETED")
    expected = bytes(range(256)) * 4096 + b"no newline at the end"
    assert hashlib.sha256(out(site, number)).digest() == hashlib.sha256(expected).digest()


def test_what_background_processes_wrote_last_is_there(site: Cluster) -> None:
    number = site.submit("for i in 1 2 3 4 5; do (sleep 0.0$i; echo line $i) & done; wait; printf end")
    site.wait_state(number, "COMPLETED")
    lines = out(site, number).split(b"\n")
    assert sorted(lines[:5]) == [b"line %d" % i for i in range(1, 6)]
    assert lines[5:] == [b"end"]


def test_output_of_many_jobs_at_once_is_each_its_own(site: Cluster) -> None:
    numbers = [site.submit("seq 1 2000; echo $SLURM_JOB_ID") for _ in range(30)]
    site.wait_all_ended(numbers)
    sequence = b"".join(b"%d\n" % one for one in range(1, 2001))
    assert [number for number in numbers if out(site, number) != sequence + b"%d\n" % number] == []


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (b"#!/bin/sh\r\necho hello\r\n", None),
        (b"#!/nonexistent/interpreter\n", 2 << 8),
        (b"#!/bin/sh\nprintf '\\0\\377'\nexit 9\n", 9 << 8),
        ("#!/bin/sh\necho grüße \N{SNOWMAN}; exit 8\n".encode(), 8 << 8),
        (b"#!/bin/sh\n# latin-1: \xe4\xf6\xfc\nexit 7\n", 7 << 8),
        (b"#!/bin/sh\n" + b"# padding\n" * 300_000 + b"exit 6\n", 6 << 8),
        (b"#!/usr/bin/env python3\nimport sys; sys.exit(5)\n", 5 << 8),
        (b"#!/bin/sh -e\nfalse\n", 1 << 8),
        (b"#!/bin/sh\nkill -SEGV $$\n", 11),
    ],
)
def test_odd_scripts_end_as_the_kernel_says(site: Cluster, script: bytes, status: int | None) -> None:
    number = site.submit(script)
    job = site.wait_state(number, "FAILED", "COMPLETED", seconds=150)
    if status is not None:
        assert job.exit_status == status, out(site, number)
