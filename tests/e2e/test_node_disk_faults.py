"""A disk that is full or fails at any moment: jobs end as they would have ended, and the node asks to be drained.

The injector `fail_disk.c` lets one call that writes SlurmdSpoolDir fail, in slurmd or in a supervisor; the tests let
each of them fail once, and from each on all that follow.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spritz.core.decide.running.reports import NODE_FAULTS
from spritz.model.job.record import Job
from spritz.model.node_daemon.reports import NodeTrouble, StepFinished, TaskEnd
from spritz.node.spool import Spool, spool_reason
from spritz.stepd import processes, record
from spritz.stepd.spec import RECORD

from .cluster import is_alive
from .launched import build_preload
from .node_harness import NodeCluster, wait_until

_STATE = struct.Struct("iiii16s")
#: More than the calls of a job.
CALLS_MAX = 100
#: Calls that are made for steps to be stored. (Others clear away, too: nothing is said where that fails.)
STORING = ("open", "write", "pwrite64")


class Injector:
    """Sets which call fails. Calls are those of all processes that were started with it."""

    def __init__(self, library: Path, directory: Path, spool: Path) -> None:
        self._path = directory / "fail_disk"
        self.clear()
        self.environ = {
            "LD_PRELOAD": str(library),
            "FAIL_DISK": str(spool),
            "FAIL_DISK_STATE": str(self._path),
        }

    def fail(self, call: int, number: int, *, lasting: bool = False) -> None:
        """The call with this number from now on fails with this errno, and all others after it if that is `lasting`."""
        self._write(call, number, int(lasting), 0)

    def clear(self) -> None:
        """Nothing fails any more."""
        self._write(0, 0, 0, 0)

    def _write(self, *numbers: int) -> None:
        if not self._path.exists():
            self._path.write_bytes(bytes(_STATE.size))
        with self._path.open("r+b", buffering=0) as file:
            file.write(_STATE.pack(*numbers, b""))

    @property
    def failed(self) -> str:
        """The call that has failed; "": none."""
        _, _, _, failed, name = _STATE.unpack(self._path.read_bytes())
        return name.rstrip(b"\0").decode() if failed else ""


@pytest.fixture(scope="session")
def fail_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that lets calls fail."""
    return build_preload("fail_disk", tmp_path_factory)


class Site(NodeCluster):
    """One node, whose disk fails by `injector`."""

    injector: Injector

    def forget_what_serves_again(self) -> None:
        """The next job has a supervisor and a directory of its own."""
        assert self.daemon is not None
        zygote = processes.children_of(self.daemon.pid)[0]
        idle = processes.children_of(zygote)
        for pid in idle:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, idle)), "supervisors have ended")
        for directory in self.spool().glob("free.*"):
            shutil.rmtree(directory)

    @property
    def has_reserve(self) -> bool:
        """Whether this machine has another file system for steps that find the spool full."""
        reserve = Spool(str(self.spool())).reserve(runs=True)
        if reserve:
            os.rmdir(reserve)
        return bool(reserve)


@pytest.fixture
def site(tmp_path: Path, fail_disk: Path) -> Iterator[Site]:
    """Runs."""
    made = Site(tmp_path, nodes=1)
    made.injector = Injector(fail_disk, made.root, made.spool())
    made.environ = made.injector.environ
    made.controller.start()
    made.start()
    yield made
    made.injector.clear()
    made.close()
    for reserve in Spool(str(made.spool()))._reserves:
        shutil.rmtree(reserve, ignore_errors=True)


def ends_well(result: StepFinished, *, has_reserve: bool) -> bool:
    """Whether the job's outcome is its own: its script ran, or it is given back to run elsewhere."""
    if result.launch_failed and not has_reserve:
        return result.error_kind in NODE_FAULTS
    return not result.launch_failed and result.tasks == (TaskEnd(0, 3 << 8),)


@pytest.mark.parametrize(
    ("number", "lasting", "anew"),
    [
        (errno.ENOSPC, False, False),
        (errno.EIO, False, False),
        (errno.ENOSPC, True, False),
        (errno.EIO, True, False),
        (errno.ENOSPC, False, True),
    ],
    ids=["full-once", "failing-once", "full", "failing", "full-once-anew"],
)
def test_no_write_that_fails_changes_the_outcome_of_a_job(site: Site, number: int, lasting: bool, anew: bool) -> None:
    """`anew`: each job has a supervisor and a directory of its own; else most follow others."""
    has_reserve = site.has_reserve
    names = []
    for call in range(1, CALLS_MAX):
        before = site.batch("#!/bin/sh\nexit 3\n")
        site.finished(before)
        wait_until(partial(is_cleared, site, before), "a directory can serve again")
        if anew:
            site.forget_what_serves_again()
        site.injector.fail(call, number, lasting=lasting)
        job = site.batch("#!/bin/sh\necho ran\nexit 3\n")
        result = site.finished(job)
        failed = site.injector.failed
        assert ends_well(result, has_reserve=has_reserve), f"call {call} ({failed}) fails: {result}\n{site.log()}"
        if not result.launch_failed:
            assert site.output(job) == "ran\n"
        if not lasting:
            wait_until(partial(is_cleared, site, job), f"the spool is cleared, where call {call} fails")
        failed = site.injector.failed
        site.injector.clear()
        if not failed:
            break
        names.append(failed)
        if failed in STORING:
            trouble = site.controller.wait_for(NodeTrouble)
            assert trouble.reason == spool_reason(number)
        site.controller.reports.clear()
    else:
        raise AssertionError(f"the job made {CALLS_MAX} calls")
    assert {*STORING, *(("mkdir", "bind") if anew else ())} <= set(names)
    site.kill()
    site.start()
    assert site.finished(site.batch("#!/bin/sh\nexit 3\n")).tasks == (TaskEnd(0, 3 << 8),)


def test_a_result_that_could_not_be_stored_outlives_slurmd(site: Site) -> None:
    """Until the controller has it, the supervisor has it."""
    job = site.batch("#!/bin/sh\ntouch begun\nwhile ! test -e go; do sleep 0.01; done\nexit 3\n")
    wait_until((site.work / "begun").exists, "the job runs")
    supervisor = site.supervisor_pid(job)
    site.controller.answering = False
    site.injector.fail(1, errno.ENOSPC, lasting=True)
    (site.work / "go").touch()
    wait_until(lambda: "spool.failed" in site.log(), "slurmd has heard that the result is not stored")
    site.kill()
    [directory] = held(site, job)
    found = record.read(str(directory / RECORD))
    assert found is not None
    assert found.result is None
    assert is_alive(supervisor)
    # Another slurmd starts when there is room again, and before the supervisor has written the result.
    site.injector.fail(0, 0)
    site.controller.answering = True
    site.start()
    assert site.finished(job).tasks == (TaskEnd(0, 3 << 8),)
    wait_until(lambda: not is_alive(supervisor) and not held(site, job), "all is cleared away")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_a_slurmd_that_starts_on_a_full_disk_has_the_jobs_that_run(site: Site, number: int) -> None:
    """They would be failed otherwise once SlurmdTimeout has passed."""
    running = site.batch("#!/bin/sh\ntouch begun\nwhile ! test -e go; do sleep 0.01; done\nexit 3\n")
    wait_until((site.work / "begun").exists, "the job runs")
    ended = site.batch("#!/bin/sh\nwhile ! test -e end; do sleep 0.01; done\nexit 4\n")
    pid = site.supervisor_pid(ended)
    site.kill()
    (site.work / "end").touch()
    wait_until(lambda: not is_alive(pid), "a job ends meanwhile")
    site.injector.fail(1, number, lasting=True)
    site.start()
    assert {step.job_id for step in site.controller.registrations[-1].running} == {running.id, ended.id}
    (site.work / "go").touch()
    assert site.finished(running).tasks == (TaskEnd(0, 3 << 8),)
    assert site.finished(ended).tasks == (TaskEnd(0, 4 << 8),)


def test_a_running_job_has_its_steps_while_the_spool_is_full(site: Site) -> None:
    """An srun within it would fail otherwise, and with it the job."""
    job = site.batch("#!/bin/sh\ntouch begun\nwhile ! test -e go; do sleep 0.01; done\nexit 3\n")
    wait_until((site.work / "begun").exists, "the job runs")
    if not site.has_reserve:
        pytest.skip("this machine has one file system")
    site.injector.fail(1, errno.ENOSPC, lasting=True)
    for step in range(3):
        site.step(job, step, ("sh", "-c", "exit 4"))
        assert site.finished(job, step).tasks == (TaskEnd(0, 4 << 8),)
    (site.work / "go").touch()
    assert site.finished(job).tasks == (TaskEnd(0, 3 << 8),)
    assert site.controller.wait_for(NodeTrouble).reason == "SlurmdSpoolDir is full"


def test_steps_of_a_full_spool_are_adopted_from_the_reserve(site: Site) -> None:
    if not site.has_reserve:
        pytest.skip("this machine has one file system")
    site.injector.fail(1, errno.ENOSPC, lasting=True)
    job = site.batch("#!/bin/sh\ntouch begun\nwhile ! test -e go; do sleep 0.01; done\nexit 3\n")
    wait_until((site.work / "begun").exists, "the job runs")
    assert held(site, job) == []
    site.kill()
    site.start()
    assert [step.job_id for step in site.controller.registrations[-1].running] == [job.id]
    (site.work / "go").touch()
    assert site.finished(job).tasks == (TaskEnd(0, 3 << 8),)
    wait_until(lambda: not any(map(os.path.exists, Spool(str(site.spool()))._reserves)), "the reserve is cleared away")


def is_cleared(site: Site, job: Job) -> bool:
    """Whether the spool has forgotten the job."""
    return not held(site, job)


def held(site: Site, job: Job) -> list[Path]:
    """Directories of the job."""
    return list(site.spool().glob(f"job{job.id:05d}.*"))
