"""The environment of Prolog, Epilog and HealthCheckProgram: few variables, none of the user's. Pure.

Source: slurm.conf(5) "PROLOG AND EPILOG SCRIPTS".
"""

from __future__ import annotations

from spritz.model.job.job_variables import ending_variables, site_variables
from spritz.model.job.record import Job
from spritz.node.launch.environment import NodeFacts
from spritz.node.launch.gpus import gpu_variables, listed_gpus
from spritz.notation import hostlist
from spritz.notation.layout import taskcounts


def hook_variables(job: Job, context: str, facts: NodeFacts) -> dict[str, str]:
    """Variables of Prolog and Epilog. `context`: `prolog_slurmd` or `epilog_slurmd`."""
    variables = site_variables(job, facts.cluster_name, facts.slurm_conf)
    variables |= {"SLURM_SCRIPT_CONTEXT": context, "SLURMD_NODENAME": facts.name, "SLURM_UID": str(job.spec.uid)}
    if job.allocation is not None:
        names = hostlist.compress(job.allocation.names)
        variables |= {
            "SLURM_JOB_NODELIST": names,
            "SLURM_NODELIST": names,
            "SLURM_JOB_NUM_NODES": str(len(job.allocation.nodes)),
            "SLURM_JOB_CPUS_PER_NODE": taskcounts.format(node.cpu_count for node in job.allocation.nodes),
        }
        here = [node for node in job.allocation.nodes if node.node == facts.name]
        if here and listed_gpus(here[0].gres):
            variables["SLURM_JOB_GPUS"] = listed_gpus(here[0].gres)
            variables |= gpu_variables(here[0].gres, facts.gpu_kinds, uuids=facts.gpu_uuids)
    if context.startswith("epilog"):
        variables |= ending_variables(job)
    return variables
