"""SLURM_ variables that describe the allocation to salloc's command.

Source: salloc(1) OUTPUT ENVIRONMENT VARIABLES; values compared with those of 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.model.job.job_variables import request_variables
from spritz.model.job.layout import job_task_counts
from spritz.notation import hostlist
from spritz.notation.layout import taskcounts

if TYPE_CHECKING:
    from spritz.model.queries.allocations import AllocationGranted

Variables = dict[str, str]


def allocation_variables(granted: AllocationGranted, slurm_conf: str) -> Variables:
    """The variables of a granted job. `slurm_conf`: path for SLURM_CONF, "" for none."""
    job = granted.job
    spec, allocation = job.spec, job.allocation
    assert allocation is not None, "a running job has nodes"
    names, count = hostlist.compress(allocation.names), str(len(allocation.nodes))
    variables = {
        "SLURM_CLUSTER_NAME": granted.settings.cluster_name,
        "SLURM_CONF": slurm_conf,
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_USER": spec.user,
        "SLURM_JOB_UID": str(spec.uid),
        "SLURM_JOB_GID": str(spec.gid),
        "SLURM_JOB_GROUP": spec.group,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NNODES": count,
        "SLURM_JOB_PARTITION": allocation.partition,
        "SLURM_JOB_CPUS_PER_NODE": taskcounts.format(node.cpu_count for node in allocation.nodes),
        "SLURM_TASKS_PER_NODE": taskcounts.format(job_task_counts(job)),
        "SLURM_JOB_START_TIME": str(int(job.started_at)),
        "SLURM_JOB_END_TIME": str(int(job.ends_at) or INFINITE),
        "SLURM_SUBMIT_DIR": spec.work_dir,
        "SLURM_SUBMIT_HOST": spec.submit_host,
    }
    optional = {
        "SLURM_JOB_ACCOUNT": spec.account,
        "SLURM_JOB_QOS": spec.qos,
        "SLURM_JOB_RESERVATION": allocation.reservation or spec.reservation,
        "SLURM_JOB_LICENSES": spec.licenses,
    }
    variables |= {name: value for name, value in optional.items() if value}
    if spec.tasks_given or spec.tasks_per_node:
        variables |= {"SLURM_NTASKS": str(spec.tasks), "SLURM_NPROCS": str(spec.tasks)}
    return variables | request_variables(spec)
