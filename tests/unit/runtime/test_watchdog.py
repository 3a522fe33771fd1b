"""What counts as a loop that waits for ever: sleep without a reason, and no wait for a disk."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from spritz.runtime.watchdog import LATE_SECONDS, LOOKS, Sleeper, Threads, threads_of_this_process

ASLEEP = Threads("S", 0, "SS")
SWAPS = Threads("D", 0, "SS")


class Clock:
    """Looks each second, as the watchdog's thread does where nothing keeps it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeper = Sleeper(1.0, now=self.now)

    def look(self, threads: Threads, times: int = 1, *, turns: int = 7, seconds: float = 1.0) -> int:
        for _ in range(times):
            self.now += seconds
            self.sleeper.look(turns, self.now, threads)
        return self.sleeper.asleep


def test_each_look_at_a_loop_that_sleeps_counts_until_it_turns() -> None:
    clock = Clock()
    assert clock.look(ASLEEP) == 0, "the first look sees a turn"
    assert clock.look(ASLEEP, LOOKS) == LOOKS
    assert clock.look(ASLEEP, turns=8) == 0
    assert clock.sleeper.silent == 0


@pytest.mark.parametrize(
    ("threads", "seconds"),
    [
        (SWAPS, 1.0),
        (Threads("S", 1, "SS"), 1.0),  # it read a page from a disk, and sleeps again
        (Threads("R", 1, "SS"), 1.0),
        (ASLEEP, 1.0 + 2 * LATE_SECONDS),  # the watchdog itself got no page or no processor
        (ASLEEP, 86400.0),  # the machine was suspended
    ],
)
def test_a_machine_that_swaps_or_was_suspended_begins_the_count_again(threads: Threads, seconds: float) -> None:
    clock = Clock()
    clock.look(ASLEEP)
    for _ in range(100):
        faults = clock.sleeper._faults
        assert clock.look(threads._replace(faults=faults + threads.faults), seconds=seconds) == 0
        assert clock.look(ASLEEP._replace(faults=clock.sleeper._faults), LOOKS - 1) == LOOKS - 1
    assert clock.sleeper.disk == 100
    assert clock.look(ASLEEP._replace(faults=clock.sleeper._faults)) == LOOKS, "a stuck loop is found all the same"


@pytest.mark.parametrize("threads", [Threads("R", 0, "SS"), Threads("S", 0, "SD"), Threads("T", 0, "TT")])
def test_a_thread_that_has_no_processor_or_waits_for_anothers_disk_does_not_count(threads: Threads) -> None:
    clock = Clock()
    clock.look(ASLEEP)
    clock.look(ASLEEP, 3)
    assert clock.look(threads, 1000) == 3
    assert clock.sleeper.disk == 0


def test_threads_and_started_programs_are_read_from_proc(tmp_path: Path) -> None:
    tasks = tmp_path / "self" / "task"
    for directory, name, state, faults in (
        (tasks / "7", "slurmd) D (x", "S", 41),
        (tasks / "8", "disk", "D", 3),
        (tasks / "9", "log", "S", 0),
        (tmp_path / "70", "prolog", "D", 0),
        (tmp_path / "71", "zygote", "Z", 0),
    ):
        directory.mkdir(parents=True)
        fields = f"{state} 1 1 1 0 -1 0 500 0 {faults} 0 1 1"
        (directory / "stat").write_text(f"{directory.name} ({name}) {fields}\n")
    (tasks / "10").mkdir()  # a thread that ends
    state, faults, others = threads_of_this_process(7, proc=str(tmp_path))
    assert (state, faults, "".join(sorted(others))) == ("S", 41, "DS"), "a kernel that tells no children"
    (tasks / "7" / "children").write_text("70 71 72 ")
    assert "".join(sorted(threads_of_this_process(7, proc=str(tmp_path)).others)) == "DDSZ"


def test_threads_of_this_process() -> None:
    ours = threads_of_this_process(threading.get_native_id())
    assert ours.state == "R"
    assert len(ours.others) >= len(os.listdir("/proc/self/task")) - 1
