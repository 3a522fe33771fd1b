"""The job's variables for programs that slurmctld runs: PrologSlurmctld, EpilogSlurmctld and MailProg. Pure.

Source: slurm.conf(5) PROLOG AND EPILOG SCRIPTS, MailProg; the variables are those of 22.05.
"""

from __future__ import annotations

from collections.abc import Sequence

from spritz.model.job.job_variables import array_variables, site_variables
from spritz.model.job.record import Job
from spritz.notation import hostlist
from spritz.notation.layout import taskcounts


def job_facts(job: Job, others: Sequence[Job], cluster_name: str, slurm_conf: str) -> dict[str, str]:
    """Variables by name. `others`: the other components of its heterogeneous job."""
    nodes = job.allocation.nodes if job.allocation is not None else ()
    variables = site_variables(job, cluster_name, slurm_conf) | array_variables(job)
    variables |= {
        "SLURM_JOB_NODELIST": hostlist.compress([node.node for node in nodes]),
        "SLURM_NNODES": str(len(nodes)),
    }
    if nodes:
        variables["SLURM_JOB_NUM_NODES"] = str(len(nodes))
        variables["SLURM_JOB_CPUS_PER_NODE"] = taskcounts.format(node.cpu_count for node in nodes)
    if job.spec.licenses:
        variables["SLURM_JOB_LICENSES"] = job.spec.licenses
    if job.het_job_id:
        variables["SLURM_HET_JOB_ID"] = str(job.het_job_id)
        variables["SLURM_HET_JOB_OFFSET"] = str(job.het_offset)
        if not job.het_offset:
            names = [
                name
                for component in (job, *others)
                if component.allocation is not None
                for name in component.allocation.names
            ]
            variables["SLURM_HET_JOB_NODELIST"] = hostlist.compress(names)
    return variables
