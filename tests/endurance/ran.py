"""What jobs wrote down: each appends a line when it begins, and one before it exits; their processes are watched."""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path

from spritz.model.ids import STEP_BATCH
from spritz_testing.daemons.history import Began, Ended, History

#: A batch script. It writes with one call each, so lines are whole; $$ is the same in all machines (one pid namespace).
SCRIPT = """#!/bin/sh
life="$SLURMD_NODENAME $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}}"
echo "began $(date +%s.%N) $life $$ $(id -u) ${{SLURM_JOB_GPUS:-none}} $ENDURANCE_TAG" >> {lines}
sleep {seconds}
echo "ended $(date +%s.%N) $life {status}" >> {lines}
exit {status}
"""


def script(lines: Path, seconds: float, status: int) -> str:
    """The script of a job that runs so long and exits with this status."""
    return SCRIPT.format(lines=lines, seconds=f"{seconds:.2f}", status=status)


class Ran:
    """Reads the lines as they come, and enters Began and Ended into the history; `stop` when all jobs are over."""

    def __init__(self, lines: Path, history: History, scripts: dict[str, str], memory_mib: dict[str, int]) -> None:
        """`scripts` and `memory_mib`: of the jobs by tag, as they are submitted."""
        self._lines = lines
        self._history = history
        self._scripts = scripts
        self._memory = memory_mib
        self._over = threading.Event()
        #: processes of scripts that run, by pidfd
        self._watched: dict[int, tuple[str, int, int]] = {}
        #: scripts that were gone when it was read that they had begun: how they ended may be written further down
        self._gone_before: list[tuple[str, int, int]] = []
        #: exit statuses that scripts wrote down before they ended
        self._statuses: dict[tuple[str, int, int], int] = {}
        self._poll = select.poll()
        #: the last moment at which every watched process was seen to run
        self._seen_at = time.time()
        self._thread = threading.Thread(target=self._follow, name="ran", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        return len(self._watched)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        self._lines.touch()
        with self._lines.open() as file:
            while not self._over.is_set():
                looked_at = time.time()
                ended = self._poll.poll(20)
                # After the look: what a script wrote before it ended is read before its end is noted.
                for line in file:
                    self._take(line.split())
                for key in self._gone_before:
                    self._ended(key)
                self._gone_before.clear()
                for descriptor, _ in ended:
                    self._gone(descriptor)
                self._seen_at = looked_at
                time.sleep(0.01)

    def _take(self, words: list[str]) -> None:
        kind, at, node, job, restart = words[:5]
        key = (node, int(job), int(restart))
        if kind == "ended":
            self._statuses[key] = int(words[5])
            return
        pid, uid, gpus, tag = int(words[5]), int(words[6]), words[7], words[8]
        self._history.add(
            Began(
                at=float(at),
                node=node,
                job_id=key[1],
                restart_count=key[2],
                step_id=STEP_BATCH,
                uid=uid,
                job_cpus=frozenset(),
                step_cpus=frozenset(),
                gres=frozenset() if gpus == "none" else frozenset(("gpu", int(one)) for one in gpus.split(",")),
                memory_mib=self._memory.get(tag, 0),
                shares=False,
                script=self._scripts.get(tag, ""),
                environment={"ENDURANCE_TAG": tag},
                task_ids=(0,),
            )
        )
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone_before.append(key)
            return
        self._watched[descriptor] = key
        self._poll.register(descriptor, select.POLLIN)

    def _gone(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        os.close(descriptor)
        self._ended(self._watched.pop(descriptor))

    def _ended(self, key: tuple[str, int, int]) -> None:
        node, job_id, restart_count = key
        status = self._statuses.get(key)
        self._history.add(
            Ended(
                # At the earliest: this thread may be late, and no rule may blame a node for that.
                at=self._seen_at,
                node=node,
                job_id=job_id,
                restart_count=restart_count,
                step_id=STEP_BATCH,
                exit_code=status or 0,
                signal=0,
                lost=status is None,  # killed: by what, nobody here knows
            )
        )
