"""CPUs, memory and I/O of jobs, from what their steps' supervisors measured."""

from __future__ import annotations

import os

from spritz.model.node_daemon.reports import RunningStep, Usage
from spritz.node.metrics.job_use import JobUse
from spritz.stepd.control import Measured


def measured(seconds: float, *pids: int) -> Measured:
    return Measured(usage=Usage(cpu_user_seconds=seconds, read_mib=2.0), pids=pids)


def test_cpus_are_what_was_spent_since_the_last_look() -> None:
    use = JobUse()
    first, second = RunningStep(7, 0, 0), RunningStep(7, 0, 1)
    use.take([("n1", first, measured(10.0)), ("n2", second, measured(1.0))], 100.0)
    assert [sample.cpus_used for samples in use.by_node.values() for sample in samples] == [0, 0]
    use.take([("n1", first, measured(20.0, os.getpid())), ("n1", second, measured(5.0))], 105.0)
    (sample,) = use.by_node["n1"]
    # The second step is new on this node, and has not been looked at there before.
    assert (sample.job_id, sample.cpus_used, sample.disk_read_mib) == (7, 200, 4)
    assert sample.memory_used_mib > 1
    use.take([], 110.0)
    assert not use.by_node
