"""What is counted as the memory of a task. Source: slurm.conf(5) JobAcctGatherParams."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from spritz.stepd import processes
from spritz.stepd.resources.usage import StepUsage, sample_intervals

SHARED_MIB = 64
#: two processes that share memory, and say when they have touched it
PROGRAM = f"""
import mmap, os, sys
shared = mmap.mmap(-1, {SHARED_MIB} << 20)
pages = range(0, len(shared), mmap.PAGESIZE)
for at in pages: shared[at] = 1
ready, told = os.pipe()
if not os.fork():
    sum(shared[at] for at in pages)
    os.write(told, b"x")
else:
    os.read(ready, 1)
    print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def pid() -> Iterator[int]:
    """The parent of the two."""
    running = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"
    yield running.pid
    running.communicate()


def peak_mib(pid: int, memory: str) -> float:
    account = StepUsage(memory=memory)
    account.sample([(1, pid)])
    return of_tasks(account, "mem") / (1 << 20)


def of_tasks(account: StepUsage, name: str) -> int:
    """A measure of the tasks alone: this process may have other children, which count as orphans."""
    return next(metric.total for metric in account.usage().metrics if metric.name == name)


def kernel_mib(pid: int, word: str) -> float:
    """What the kernel adds up of both processes: `Rss` or `Pss`."""
    found = 0
    for one in (pid, *processes.descendants(pid)):
        lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        found += next(int(line.split()[1]) for line in lines if line.startswith(f"{word}:"))
    return found / 1024


def test_shared_pages_count_for_each_process_or_once_or_not_at_all(pid: int) -> None:
    resident, proportional, private = (peak_mib(pid, memory) for memory in ("rss", "pss", "private"))
    assert resident >= 2 * SHARED_MIB
    assert proportional == pytest.approx(
        kernel_mib(pid, "Pss"), rel=0.05
    )  # how it shares large pages is its own affair
    assert private < SHARED_MIB


def reaped_peak_mib(size_mib: int) -> float:
    """What is known of a child that had our memory, then so much of its own, and was never looked at."""
    program = f"keep = bytearray({size_mib} << 20)"
    pid = os.posix_spawn(sys.executable, [sys.executable, "-ISc", program], {})
    _, _, used = os.wait4(pid, 0)
    account = StepUsage()
    account.add(used, 1)
    return of_tasks(account, "mem") / (1 << 20)


def test_memory_that_a_child_had_of_us_before_its_exec_is_not_its_own() -> None:
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    assert reaped_peak_mib(0) == 0
    assert reaped_peak_mib(ours + 50) > ours + 50


def test_time_of_what_runs_is_known_and_counts_once_when_it_has_ended() -> None:
    program = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint('ready', flush=True)\nsys.stdin.read()"
    running = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdin is not None
    assert running.stdout.readline() == b"ready\n"
    account = StepUsage()
    account.sample([(1, running.pid)])
    assert of_tasks(account, "cpu") >= 250
    running.stdin.close()
    running.stdout.close()
    _, _, used = os.wait4(running.pid, 0)
    running.returncode = 0
    account.add(used, 1)
    assert of_tasks(account, "cpu") == round((used.ru_utime + used.ru_stime) * 1000)


def test_samples_are_dense_at_first_and_then_as_far_apart_as_asked() -> None:
    seconds = [round(interval, 1) for interval in islice(sample_intervals(30), 11)]
    assert seconds == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
    assert next(sample_intervals(0.05)) == 0.05
