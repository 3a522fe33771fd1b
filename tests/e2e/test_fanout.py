"""A step over virtual nodes of several daemons starts, is signalled and ends as a tree: each daemon is told once. Its
output comes up a tree, and what it reads goes down."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import BIN, Cluster, command_name, is_alive, until
from tests.e2e.commands import environment

DAEMONS = ("n[1-4]", "n[5-8]", "n[9-12]")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Twelve nodes in three daemons, which pass on to one each."""
    made = Cluster(nodes=12, cpus=1, extra="TreeWidth=1")
    made.node_lines = "\n".join(
        f"NodeName={names} NodeAddr=127.0.0.1 Port={made.node_port + at} CPUs=1 RealMemory=800"
        for at, names in enumerate(DAEMONS)
    )
    made.write_conf()
    try:
        made.start_controller()
        for names in DAEMONS:
            made.start_nodes(names, wait=False)
        until(lambda: len([view for view in made.nodes() if view.node.registered_at]) == 12, "all nodes register")
        yield made
    finally:
        made.close()


def taken(cluster: Cluster, kind: str) -> list[list[tuple[int, int]]]:
    """Of each daemon: own nodes, and those below, of the orders of a kind that it got."""
    logs = [(cluster.root / f"slurmd-{name}.log").read_text() for name in ("n1", "n5", "n9")]
    pattern = re.compile(rf"order\.taken kind={kind} nodes=(\d+) below=(\d+)")
    return [[(int(here), int(below)) for here, below in pattern.findall(log)] for log in logs]


def test_launch_signal_and_end_reach_twelve_nodes_by_one_message_of_the_controllers(cluster: Cluster) -> None:
    script = "trap 'echo usr; exit 0' USR1; echo up; read nothing"
    with subprocess.Popen(
        [BIN / "srun", "-N12", "sh", "-c", script],
        env=environment(cluster),
        cwd=cluster.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as srun:
        assert srun.stdout is not None
        assert [srun.stdout.readline() for _ in range(12)] == ["up\n"] * 12
        chain = [[(4, 8)], [(4, 4)], [(4, 0)]]
        assert taken(cluster, "LaunchStep") == chain
        subprocess.run([BIN / "scancel", "--signal=USR1", "--me"], env=environment(cluster), check=True)
        assert srun.stdout.read() == "usr\n" * 12, "each task has it once"
        assert srun.wait(60) == 0
        assert taken(cluster, "SignalTasks") == chain
    until(lambda: taken(cluster, "TerminateJob") == chain, "the job ends on all nodes by one message")


class Run:
    """An srun on all nodes; `lines()` is what its tasks have said so far."""

    def __init__(self, cluster: Cluster, script: str, *options: str, stdin: int | None = None) -> None:
        argv: list[str | Path] = [BIN / "srun", "-N12", *options, "sh", "-c", script]
        self._output = cluster.work / "output"
        with self._output.open("wb") as output, (cluster.work / "errors").open("wb") as errors:
            self.process = subprocess.Popen(
                argv, env=environment(cluster), cwd=cluster.work, stdin=stdin, stdout=output, stderr=errors
            )

    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def wait_for_lines(self, count: int) -> list[str]:
        until(lambda: len(self.lines()) >= count, lambda: f"{count} lines come: {self.lines()}")
        return self.lines()


def connections(cluster: Cluster) -> int:
    """How many supervisors are connected to the srun itself, not to each other's."""
    (view,) = cluster.steps()
    name = view.step.spec.io_address.removeprefix("unix:")
    pattern = re.compile(rf" 0001 03 +\d+ {name}$", re.MULTILINE)
    return len(pattern.findall(Path("/proc/net/unix").read_text()))


@pytest.mark.parametrize("width", [1, 2, 3, 11])
def test_output_of_twelve_nodes_comes_by_few_connections(cluster: Cluster, width: int) -> None:
    script = "echo $SLURM_PROCID; read word; seq -f $SLURM_PROCID.%g 2000; echo $word >&2; exit $((SLURM_PROCID == 7))"
    run = Run(cluster, script, f"--treewidth={width}", "--label", stdin=subprocess.PIPE)
    assert sorted(run.wait_for_lines(12)) == sorted(f"{rank:2}: {rank}" for rank in range(12))
    assert connections(cluster) == width
    run.process.communicate(b"hello\n", timeout=60)
    assert run.process.returncode == 1
    lines = run.lines()[12:]
    for rank in range(12):
        own = [line for line in lines if line.startswith(f"{rank:2}: ")]
        assert own == [f"{rank:2}: {rank}.{number}" for number in range(1, 2001)], "whole, and in its order"
    errors = (cluster.work / "errors").read_text().splitlines()
    hello = [f"{rank:2}: hello" for rank in range(12)]  # of some nodes after the end of task 7
    assert sorted(errors) == sorted([*hello, "srun: error: n8: task 7: Exited with exit code 1"])


def test_supervisors_that_die_take_no_other_nodes_output_along(cluster: Cluster) -> None:
    """Nodes behind them come by another way, and say again what was lost on the way."""
    script = "echo up $SLURM_PROCID $PPID; read go; seq -f $SLURM_PROCID.%g 20000; echo end $SLURM_PROCID; read end"
    run = Run(cluster, script, "--no-kill", stdin=subprocess.PIPE)
    assert run.process.stdin is not None
    pids = {int(line.split()[1]): int(line.split()[2]) for line in run.wait_for_lines(12)}
    run.process.stdin.write(b"go\n")
    run.process.stdin.flush()
    os.kill(pids[3], signal.SIGKILL)
    os.kill(pids[7], signal.SIGKILL)
    left = set(range(12)) - {3, 7}
    until(lambda: {f"end {rank}" for rank in left} <= set(run.lines()), "all others end", 60)
    run.process.communicate(b"end\n", timeout=60)
    for rank in left:
        own = [line for line in run.lines() if line.startswith(f"{rank}.")]
        assert own == [f"{rank}.{number}" for number in range(1, 20001)], "once, and in its order"
    errors = (cluster.work / "errors").read_text()
    assert errors.count("io error and missing step") == 2
    assert run.process.returncode == 137


@pytest.mark.slow
def test_a_reader_that_stops_stops_all_tasks_and_loses_nothing(cluster: Cluster) -> None:
    argv: list[str | Path] = [BIN / "srun", "-N12", "--treewidth=2", "seq", "400000"]
    with subprocess.Popen(argv, env=environment(cluster), cwd=cluster.work, stdout=subprocess.PIPE) as srun:
        assert srun.stdout is not None
        first = srun.stdout.read(4096)
        (view,) = cluster.steps()

        def waiting() -> list[str]:
            pids = cluster.job_processes(view.step.job_id)
            return [Path(f"/proc/{pid}/wchan").read_text() for pid in pids if command_name(pid) == "seq"]

        # The supervisors between a task and srun hold a bounded part of the output: some tasks may have written all.
        until(lambda: (where := waiting()) and all("pipe_write" in call for call in where), "all tasks wait")
        lines = (first + srun.stdout.read()).splitlines()
        assert srun.wait(60) == 0
    assert Counter(lines) == dict.fromkeys((b"%d" % number for number in range(1, 400001)), 12)


def test_a_file_is_sent_down_the_tree(cluster: Cluster) -> None:
    """Virtual nodes share a disk: what is left is the last copy that was complete."""
    source = cluster.work / "source"
    source.write_bytes(os.urandom(3_000_000))
    argv: list[str | Path] = [
        BIN / "salloc",
        "-N12",
        "-Q",
        BIN / "sbcast",
        "--fanout=2",
        "-f",
        "source",
        cluster.work / "copy",
    ]
    subprocess.run(argv, env=environment(cluster), cwd=cluster.work, check=True)
    assert (cluster.work / "copy").read_bytes() == source.read_bytes()


def test_all_tasks_end_with_the_client(cluster: Cluster) -> None:
    run = Run(cluster, "echo $$; sleep 600", "--treewidth=2")
    pids = [int(line) for line in run.wait_for_lines(12)]
    run.process.kill()
    run.process.wait()
    until(lambda: not any(is_alive(pid) for pid in pids), "no task is left")
    until(lambda: not cluster.steps(), "the step has ended")
