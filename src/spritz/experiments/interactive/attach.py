"""Commands inside a running run, as a step of its job that shares the job's resources (srun --overlap).

The command gets the environment and directory of the run's process on that node, read from /proc. So it has the
variables that the job's script set, without writing them to disk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import states
from spritz.experiments.records import record
from spritz.experiments.records.store import Entry, Store

#: Words: run, rank ("" for any), directory where no process is found, then the command. A process counts if its
#: environment has the run's name, this job and this node: nodes may share a kernel. What we started does not count.
ENTER = r"""
run=$1 rank=$2 directory=$3 here=$SLURM_JOB_ID-$SLURMD_NODENAME; shift 3
for file in $(grep -slzxF "SPRITZ_RUN=$run" /proc/[0-9]*/environ | sort -V); do
    mapfile -d '' -t variables 2>/dev/null < "$file" || continue
    task= place= job=
    for variable in "${variables[@]}"; do
        case $variable in
            SLURM_PROCID=*) task=${variable#*=} ;;
            SLURM_JOB_ID=*) job=${variable#*=} ;;
            SLURMD_NODENAME=*) place=${variable#*=} ;;
            SPRITZ_SAMPLER=* | SPRITZ_ATTACHED=*) continue 2 ;;
        esac
    done
    if [ -z "$task" ] || [ "$job-$place" != "$here" ] || [ "${rank:-$task}" != "$task" ]; then continue; fi
    for variable in "${variables[@]}"; do
        case $variable in
            TERM=* | COLUMNS=* | LINES=* | SSH_*) ;;
            [A-Za-z_]*=*) export "$variable" 2>/dev/null ;;
        esac
    done
    directory=$(readlink "${file%environ}cwd")
    found=yes
    break
done
if [ -n "$rank" ] && [ -z "$found" ]; then
    echo "spritz: rank $rank of $run is not on $SLURMD_NODENAME" >&2
    exit 69
fi
export SPRITZ_ATTACHED=1
cd "$directory" 2>/dev/null || cd
exec "$@"
"""


def running(store: Store, name: str, owner: str) -> Entry:
    """The run, if it is running. Raises ExperimentError if it is not."""
    entry = store.get(name, owner)
    states.refresh(store, [entry])
    entry = store.get(entry.name, entry.owner)
    if entry.state != "RUNNING":
        raise ExperimentError(f"{entry.name} is not running: it is {entry.state}")
    return entry


def nodes_of(job_id: str) -> list[str]:
    """The job's nodes in order. Raises ExperimentError if it has none."""
    known = slurm.queued([job_id]).get(job_id)
    if known is None or not known.nodes:
        raise ExperimentError(f"job {job_id} has no nodes")
    done = slurm.call(["scontrol", "show", "hostnames", known.nodes])
    return done.stdout.split()


def node_of(nodes: Sequence[str], *, node: str = "", rank: int | None = None, tasks_per_node: int = 1) -> str:
    """The selected node. Ranks fill one node after another. Raises ExperimentError if it does not exist."""
    if node:
        if node.isdecimal() and node not in nodes and int(node) < len(nodes):
            return nodes[int(node)]
        if node not in nodes:
            raise ExperimentError(f"{node} is not a node of the run", hint=f"its nodes are {', '.join(nodes)}")
        return node
    place = (rank or 0) // max(1, tasks_per_node)
    if place >= len(nodes) or place < 0:
        raise ExperimentError(f"there is no rank {rank}: the run has {len(nodes) * max(1, tasks_per_node)}")
    return nodes[place]


def tasks_per_node(directory: Path) -> int:
    """Tasks per node that the run's script requests; 1 by default."""
    try:
        lines = (directory / "job.sh").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return 1
    for line in lines:
        _, separator, value = line.partition("#SBATCH --ntasks-per-node=")
        if separator and value.isdecimal():
            return int(value)
    return 1


def step(job_id: str, node: str, directory: Path, *options: str) -> list[str]:
    """The srun command for one task on this node of the job, overlapping all others."""
    if "_" in job_id:
        job_id = slurm.shown(job_id).get("JobId", job_id)
    return [
        "srun", f"--jobid={job_id}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}",
        f"--chdir={directory}", "--mpi=none", *options,
    ]  # fmt: skip


def entering(entry: Entry, command: Sequence[str], rank: int | None = None) -> list[str]:
    """The command with the run's environment and directory."""
    known = record.read(Path(entry.directory))
    code = known.code
    fallback = entry.directory
    if code:
        fallback = os.path.join(code["root"] if known.runs_in_place else f"{entry.directory}/code", code["directory"])
    return ["bash", "-c", ENTER, "spritz", entry.name, "" if rank is None else str(rank), fallback, *command]


def environment() -> dict[str, str]:
    """The environment for srun, without variables of an enclosing allocation, which would change the step."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not name.startswith(("SLURM_", "SPRITZ_RUN_", "SPRITZ_ATTACHED"))
    }


def shell() -> list[str]:
    """The command line of the user's login shell."""
    return [os.environ.get("SHELL") or "/bin/bash", "-i"]
