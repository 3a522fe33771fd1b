"""The steps of docs/how-to/back-up.md: a copy of the controller's state is restored, and the cluster works on.

Between copy and restoration jobs were submitted, run and ended, and slurmctld was started several times: nodes know
terms and job ids that the copy does not.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.controller.nodes.links import IDS_LOST
from spritz.model.commands.job import Done, ReleaseJob
from spritz.model.job.job_filter import JobTarget
from tests.conformance.databases import Server, program, reason, server
from tests.e2e.cluster import Cluster, until
from tests.e2e.controllers import HOSTS, Controllers

TERM_LINE = "state.older"


def lost_work(cluster: Cluster) -> tuple[int, int, int]:
    """What happens after the copy: a job ends, another one runs, and one waits. Returns their ids."""
    ended = cluster.submit("true")
    cluster.wait_state(ended, "COMPLETED")
    running = cluster.submit("sleep 1000")
    cluster.wait_state(running, "RUNNING")
    cluster.supervisor(running)
    waiting = cluster.submit("true", hold=True)
    return ended, running, waiting


def check(cluster: Cluster, kept: int, lost: tuple[int, int, int]) -> None:
    """The restored cluster runs and cancels jobs, ends what it does not know, and gives no id twice."""
    _, running, waiting = lost
    assert kept in cluster.jobs()
    assert set(cluster.jobs()).isdisjoint(lost)
    until(lambda: not cluster.job_processes(running), "the job that the state does not know is ended")
    new = cluster.submit("true")
    assert waiting < new <= waiting + IDS_LOST + 10
    cluster.wait_state(new, "COMPLETED")
    other = cluster.submit("sleep 1000")
    cluster.wait_state(other, "RUNNING")
    cluster.cancel(other, kept)
    cluster.wait_state(other, "CANCELLED")
    cluster.wait_state(kept, "CANCELLED")


def release(cluster: Cluster, job: int) -> None:
    cluster.call(ReleaseJob(target=JobTarget(job)), Done)


def test_a_restored_state_directory_works_on(cluster: Cluster) -> None:
    state, copy = cluster.root / "state", cluster.root / "copy"
    kept = cluster.submit("true", hold=True)
    # Back up
    assert cluster.stop_controller() == 0
    shutil.copytree(state, copy)
    for _ in range(3):
        cluster.start_controller()
        cluster.kill_controller()
    cluster.start_controller()
    lost = lost_work(cluster)
    # Restore
    assert cluster.stop_controller() == 0
    shutil.move(state, cluster.root / "state.replaced")
    shutil.copytree(copy, state)
    cluster.start_controller()
    until(lambda: TERM_LINE in cluster.controller_log(), "a node tells of the later terms")
    check(cluster, kept, lost)
    # The state is an ordinary one again.
    cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_state(cluster.submit("true"), "COMPLETED")
    assert cluster.controller_log().count(TERM_LINE) == 1


def test_a_job_that_waited_in_the_copy_and_ran_since_runs_again(cluster: Cluster) -> None:
    """Its number and its first life are in the memory of the node, which starts nothing twice by mistake."""
    state, copy = cluster.root / "state", cluster.root / "copy"
    job = cluster.submit("echo ran >> runs", hold=True)
    assert cluster.stop_controller() == 0
    shutil.copytree(state, copy)
    cluster.start_controller()
    release(cluster, job)
    cluster.wait_state(job, "COMPLETED")
    assert cluster.stop_controller() == 0
    shutil.rmtree(state)
    shutil.copytree(copy, state)
    cluster.start_controller()
    release(cluster, job)
    cluster.wait_state(job, "COMPLETED")
    assert (cluster.work / "runs").read_text() == "ran\n" * 2


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Server]:
    if why := reason("postgresql"):
        pytest.skip(why)
    if not (program("pg_dump") and program("pg_restore")):
        pytest.skip("no pg_dump and pg_restore")
    with server("postgresql") as running:
        yield running


@pytest.fixture
def pair(postgresql: Server) -> Iterator[Controllers]:
    found = Controllers(postgresql)
    try:
        yield found.begin_both()
    finally:
        found.close()


def stop_both(pair: Controllers) -> None:
    """The standby first: it would lead."""
    for name in reversed(HOSTS):
        pair.signal(name, signal.SIGTERM)
        assert pair.ctl[name].wait(100) == 0


def start_both(pair: Controllers) -> None:
    for name in HOSTS:
        pair.begin(name)
        until(lambda: pair.leading() == "ctl1", "ctl1 leads")


@pytest.mark.slow
def test_a_restored_database_works_on_and_its_standby_takes_over(pair: Controllers) -> None:
    url = pair.url.replace("+psycopg", "")
    dump = pair.root / "journal.dump"
    kept = pair.submit("true", hold=True)
    # Back up
    stop_both(pair)
    run("pg_dump", "--format=custom", "--file", dump, url)
    for _ in range(3):
        pair.begin("ctl1")
        until(lambda: pair.leads("ctl1"), "it leads")
        pair.kill("ctl1")
    start_both(pair)
    lost = lost_work(pair)
    # Restore
    stop_both(pair)
    run("pg_restore", "--clean", "--if-exists", "--single-transaction", "--dbname", url, dump)
    start_both(pair)
    until(lambda: TERM_LINE in pair.log_of("ctl1"), "a node tells of the later terms")
    check(pair, kept, lost)
    # The raised term is in the database: the lease was kept, and the standby leads with the next term.
    pair.kill("ctl1")
    until(lambda: pair.leading() == "ctl2", "the standby leads")
    pair.wait_state(pair.submit("true"), "COMPLETED")
    assert TERM_LINE not in pair.log_of("ctl2")


def run(name: str, *words: str | Path) -> None:
    found = program(name)
    assert found is not None
    done = subprocess.run([found, *map(str, words)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
