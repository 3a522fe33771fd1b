"""Make a golden journal: a real cluster goes through what jobs, steps, nodes and partitions can go through.

    python -m tests.conformance.journals.record VERSION

writes `VERSION.db` (a state directory's journal.db, without an image: everything is replayed) and `VERSION.json` (the
state that it must give) beside this file. Recorded once a release, with that release; never again.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

from spritz.controller.journal_sqlite import SqliteJournal
from spritz.controller.recovery import recover
from spritz.core.machine import Machine
from spritz.model.cluster import ClusterSettings
from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import BIN

HERE = Path(__file__).parent

_GRES = "NodeName=n[1-3] Name=gpu Type=t Count=2\n"


def summary(machine: Machine) -> dict[str, object]:
    """What of the state is compared: enough to notice an event that is read otherwise than it was meant."""
    state = machine.state
    return {
        "version": state.version,
        "jobs": {
            str(job.id): {
                "name": job.spec.name,
                "state": job.state.value,
                "flags": int(job.flags),
                "reason": job.reason.value,
                "priority": job.priority,
                "restarts": job.restart_count,
                "exit": [job.exit_status, job.derived_exit_status],
                "array": [job.array_job_id, job.array_task_id],
                "nodes": list(job.allocation.names) if job.allocation is not None else [],
                "times": [job.submitted_at, job.eligible_at, job.started_at, job.ended_at, job.suspended_seconds],
                "dependencies": len(job.dependencies),
            }
            for job in sorted(state.jobs.values(), key=lambda job: job.id)
        },
        "steps": sorted(
            [step.job_id, step.step_id, list(step.running_nodes)]
            for steps in state.steps.values()
            for step in steps.values()
        ),
        "nodes": {
            name: [node.state.value, int(node.flags), node.reason, node.registered_at, list(node.features_active)]
            for name, node in sorted(state.nodes.items())
        },
        "partitions": {name: list(one.nodes) for name, one in sorted(state.partitions.items())},
    }


def replayed(directory: Path) -> Machine:
    """The state after every event of the journal in a directory."""
    journal = SqliteJournal(directory)
    try:
        return recover(journal, ClusterSettings()).machine
    finally:
        journal.close()


class Story:
    """Commands typed on a cluster, with an environment that tells nothing of whoever records."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        ours = cluster.root / "bin"
        ours.symlink_to(BIN)
        self.environ = {"SLURM_CONF": str(cluster.conf), "PATH": f"{ours}:/usr/bin:/bin", "LANG": "C"}

    def type(self, *argv: str) -> str:
        """One command; what it printed."""
        argv = (str(self.cluster.root / "bin" / argv[0]), *argv[1:])
        done = subprocess.run(argv, cwd=self.cluster.work, env=self.environ, capture_output=True, text=True, timeout=60)
        print("$", *argv, "->", done.returncode, (done.stdout + done.stderr).strip()[:200])
        return done.stdout

    def job(self, *options: str, script: str = "true") -> int:
        """sbatch; the job's number."""
        return int(self.type("sbatch", "--parsable", *options, f"--wrap={script}"))

    def tell(self) -> None:
        """Everything once; ends with jobs that run, wait, are held and are suspended."""
        cluster, type_, job = self.cluster, self.type, self.job
        first = job("-N2", "--job-name=steps", script="srun -n4 true; srun -n1 sh -c 'exit 3'; true")
        failing = job("--job-name=failing", script="exit 7")
        after = job(f"--dependency=afterok:{first}", "--job-name=after")
        never = job(f"--dependency=afterok:{failing}", "--job-name=never")
        array = job("--array=0-7%2", "--job-name=array", script="test $SLURM_ARRAY_TASK_ID != 3")
        gpus = job("--gpus=2", "--mem=100", "--job-name=gpus")
        limited = job("--time=0:01", "--job-name=limited", script="sleep 300")
        for number in (first, failing, after, gpus):
            cluster.wait_state(number, "COMPLETED", "FAILED")
        cluster.wait_state(never, "PENDING")
        held = job("--hold", "--job-name=held", "--nice=5")
        type_("scontrol", "update", f"JobId={held}", "TimeLimit=10", "Comment=changed")
        type_("scontrol", "release", str(held))
        again = job("--job-name=again", "--requeue", script="test $SLURM_RESTART_COUNT || sleep 300")
        cluster.wait_state(again, "RUNNING")
        type_("scontrol", "requeue", str(again))
        stopped = job("--job-name=stopped", script="sleep 300")
        cluster.wait_state(stopped, "RUNNING")
        type_("scontrol", "suspend", str(stopped))
        type_("scontrol", "resume", str(stopped))
        type_("scontrol", "suspend", str(stopped))
        cancelled = job("--job-name=cancelled", script="sleep 300")
        cluster.wait_state(cancelled, "RUNNING")
        type_("scancel", str(cancelled))
        type_("scontrol", "create", "PartitionName=night", "Nodes=n3", "MaxTime=60")
        type_("scontrol", "update", "PartitionName=night", "State=DOWN")
        job("-p", "night", "--job-name=waits-for-night")
        type_("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=golden")
        type_("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=failed")
        type_("scontrol", "update", "NodeName=n2", "State=RESUME")
        type_("srun", "-n2", "--job-name=interactive", "true")
        cluster.wait_state(limited, "TIMEOUT", seconds=150)
        cluster.wait_state(again, "COMPLETED", seconds=150)
        cluster.kill_controller()
        cluster.start_controller()
        job("--hold", "--array=1-3", "--job-name=held-array")
        job("--begin=now+10days", "--job-name=later")
        running = job("--job-name=running", script="sleep 300")
        cluster.wait_state(running, "RUNNING")
        until(lambda: not self.type("squeue", "-h", "-n", "array"), f"array {array} is through")


def main(version: str) -> int:
    """Record, and check that what was recorded gives the same state again."""
    os.environ.pop("SLURM_CONF", None)
    cluster = Cluster(nodes=3, cpus=8, extra="GresTypes=gpu\nMinJobAge=86400\nOverTimeLimit=0")
    try:
        (cluster.conf.parent / "gres.conf").write_text(_GRES)
        cluster.node_lines = cluster.node_lines.replace("State=", "Gres=gpu:t:2 Features=fast State=")
        cluster.write_conf()
        cluster.start()
        Story(cluster).tell()
        cluster.kill_controller()
        state = cluster.root / "state"
        for image in state.glob("image.*"):
            image.unlink()
        expected = summary(replayed(state))
        with sqlite3.connect(state / "journal.db") as database:
            database.execute("PRAGMA journal_mode = DELETE")
        database.close()
        shutil.copy(state / "journal.db", HERE / f"{version}.db")
        (HERE / f"{version}.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
    finally:
        if cluster.controller is not None and cluster.controller.poll() is not None:
            cluster.start_controller()
        cluster.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
