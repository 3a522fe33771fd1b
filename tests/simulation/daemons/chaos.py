"""A workload and misfortunes of machines, drawn from a seed: `test_nodes` runs some seeds, `main` as many as wanted.

`python -m tests.simulation.daemons.chaos FIRST LAST`
"""

from __future__ import annotations

import errno
import os
import random
import sys
import traceback

from spritz.model.commands.job import Done, RequeueJob, ResumeJob, SuspendJob
from spritz.model.commands.step import CreateStep, StepCreated
from spritz.model.job_filter import JobTarget
from spritz.model.step import StepSpec
from spritz.sim.daemons.disk import renew_disk
from spritz.sim.daemons.work import StepRun
from tests.simulation.daemons.cluster import Cluster

_OVER = ("COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL")
_MORE = """\
TreeWidth=2
UnkillableStepTimeout=30
Prolog=/site/prolog
Epilog=/site/epilog
MinJobAge=100000
"""

_KINDS = (
    *("daemon", "daemon stops", "controller", "supervisor", "power", "hang", "memory", "spool", "failing", "slow"),
    *("undying", "late", "network", "start", "failing jobs", "prolog", "slow epilog", "reboot", "clock"),
)


def chaos(seed: int, jobs: int = 15, faults: int = 8) -> list[str]:
    """Run it, check it, and tell the story."""
    chance = random.Random(f"chaos {seed}")
    cluster = Cluster(seed, nodes=5, more=_MORE)
    cluster.world.run(5)
    numbers = []
    actions = [_submit] * jobs + [_misfortune] * faults + [_change] * (jobs // 2)
    chance.shuffle(actions)
    for action in actions:
        cluster.world.run(chance.uniform(0.0, 15.0))
        if action is _submit:
            numbers.append(_submit(cluster, chance))
        elif action is _change:
            _change(cluster, chance, numbers)
        else:
            _misfortune(cluster, chance)
    _heal(cluster)
    for number in numbers:
        cluster.release(number)  # where its prolog has failed
        cluster.go_on(number)
        cluster.ends(number, *_OVER, seconds=2400)
    cluster.wait(lambda: not any(machine.steps for machine in cluster.machines.values()), 600)
    cluster.check()
    cluster.close()
    return cluster.lines()


def _submit(cluster: Cluster, chance: random.Random) -> int:
    seconds = round(chance.uniform(0.0, 60.0), 2)
    line = f"seconds={seconds} exit={chance.choice((0, 0, 0, 1))}"
    if chance.random() < 0.2:
        line += " ignore=15"
    nodes = chance.choice((1, 1, 2, 3))
    sizes = {"nodes_min": nodes, "nodes_max": nodes, "nodes_given": True, "memory_mib_per_node": 500}
    number = cluster.submit(line, requeue=chance.random() < 0.7, **sizes)
    if nodes > 1:
        for machine in cluster.machines.values():
            machine.on_began.append(_StepOf(cluster, number, nodes, chance))
    return number


def _change(cluster: Cluster, chance: random.Random, numbers: list[int]) -> None:
    """A user cancels a job, or an administrator suspends one and resumes it a little later."""
    if not numbers:
        return
    number = chance.choice(numbers)
    kind = chance.choice(("cancel", "suspend", "requeue"))
    target, host = JobTarget(job_id=number), cluster.controller.host
    if kind == "cancel":
        cluster.cancel(number)
    elif kind == "requeue":
        cluster.spawn(host, lambda channel: channel.call(RequeueJob(target=target), Done))
    else:

        def resume() -> None:
            cluster.spawn(host, lambda channel: channel.call(ResumeJob(target=target), Done), uid=0)

        cluster.spawn(host, lambda channel: channel.call(SuspendJob(target=target), Done), uid=0)
        cluster.world.after(chance.uniform(0.1, 30.0), resume)


class _StepOf:
    """The script of a job on several nodes begins a step when it runs."""

    def __init__(self, cluster: Cluster, number: int, nodes: int, chance: random.Random) -> None:
        self.cluster, self.number, self.nodes = cluster, number, nodes
        self.seconds = round(chance.uniform(0.0, 20.0), 2)

    def __call__(self, step: StepRun) -> None:
        if step.spec.job_id == self.number and step.spec.batch:
            spec = StepSpec(
                argv=("sim", f"seconds={self.seconds}"), tasks=self.nodes, nodes_min=self.nodes, io_key=f"{step}"
            )
            request = CreateStep(job_id=self.number, spec=spec)
            self.cluster.spawn(step.machine.host, lambda channel: channel.call(request, StepCreated))


def _misfortune(cluster: Cluster, chance: random.Random) -> None:
    machine = chance.choice(list(cluster.machines.values()))
    name = machine.host.name
    kind = chance.choice(_KINDS)
    cluster.world.tell(f"misfortune: {kind} of {name}")
    seconds = chance.uniform(1.0, 100.0)
    daemon = cluster.daemons[name]
    if kind == "daemon":
        daemon.kill()
    elif kind == "daemon stops":
        daemon.stop()
        cluster.world.after(seconds, daemon.start)
    elif kind == "controller":
        cluster.controller.kill()
        renew_disk(cluster.root / "ctl" / "state")
    elif kind == "supervisor":
        machine.kill_supervisor()
    elif kind == "power":
        cluster.lose_power(name, seconds)
    elif kind == "hang":
        machine.hang(seconds)
    elif kind == "memory":
        machine.for_a_while("fork_error", errno.ENOMEM, seconds)
    elif kind == "spool":
        machine.for_a_while("disk.error", errno.ENOSPC, seconds)
    elif kind == "failing":
        machine.for_a_while("disk.error", errno.EIO, seconds)
    elif kind == "slow":
        machine.for_a_while("disk.slow_seconds", 0.3, seconds)
    elif kind == "undying":
        machine.let_none_die(seconds)
    elif kind == "late":
        cluster.world.network.slow(name, "ctl", 2.0, seconds)
    elif kind == "network":
        cluster.world.network.cut(name, "ctl", seconds)
    elif kind == "failing jobs":
        machine.for_a_while("fails_jobs", True, seconds)
    elif kind == "prolog":
        machine.for_a_while("programs", {"/site/prolog": (0.1, "exit status 1")}, seconds)
    elif kind == "slow epilog":
        machine.for_a_while("programs", {"/site/epilog": (20.0, "")}, seconds)
    elif kind == "reboot":
        machine.reboot()
    elif kind == "clock":
        machine.host.set_clock(chance.uniform(-100.0, 100.0))
    else:
        machine.for_a_while("start_seconds", (0.5, 5.0), seconds)


def _heal(cluster: Cluster) -> None:
    """All faults pass, and an administrator has drained nodes serve again."""
    cluster.world.run(130)
    for name, daemon in cluster.daemons.items():
        daemon.start()
        cluster.resume(name)


def main() -> None:
    first, last = int(sys.argv[1]), int(sys.argv[2])
    failed = []
    for seed in range(first, last):
        pid = os.fork()
        if not pid:
            try:
                lines = chaos(seed)
                kinds = sum(1 for line in lines if "misfortune" in line)
                print(seed, "ok", len(lines), kinds, flush=True)
                os._exit(0)
            except BaseException:
                print(seed, "FAILED", traceback.format_exc(), flush=True)
                os._exit(1)
        if os.waitpid(pid, 0)[1]:
            failed.append(seed)
    print("failed:", failed)


if __name__ == "__main__":
    main()
