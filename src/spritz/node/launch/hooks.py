"""The environment of Prolog, Epilog and HealthCheckProgram: few variables, none of the user's. Pure.

Source: slurm.conf(5) "PROLOG AND EPILOG SCRIPTS".
"""

from __future__ import annotations

from spritz.model.job import Job
from spritz.node.launch.environment import NodeFacts
from spritz.node.launch.gpus import gpu_variables, listed_gpus
from spritz.notation import hostlist

_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def hook_variables(job: Job, context: str, facts: NodeFacts) -> dict[str, str]:
    """For `prolog_slurmd` and `epilog_slurmd`."""
    spec = job.spec
    variables = {
        "PATH": _SEARCH_PATH,
        "SLURM_SCRIPT_CONTEXT": context,
        "SLURM_CLUSTER_NAME": facts.cluster_name,
        "SLURM_CONF": facts.slurm_conf,
        "SLURMD_NODENAME": facts.name,
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_USER": spec.user or str(spec.uid),
        "SLURM_JOB_UID": str(spec.uid),
        "SLURM_UID": str(spec.uid),
        "SLURM_JOB_GROUP": spec.group or str(spec.gid),
        "SLURM_JOB_GID": str(spec.gid),
        "SLURM_JOB_PARTITION": job.partition or (job.allocation.partition if job.allocation else ""),
        "SLURM_JOB_WORK_DIR": spec.work_dir,
        "SLURM_JOB_RESTART_COUNT": str(job.restart_count),
        "SLURM_JOB_STDOUT": spec.stdout,
        "SLURM_JOB_STDERR": spec.stderr,
        "SLURM_JOB_STDIN": spec.stdin,
    }
    optional = {
        "SLURM_JOB_ACCOUNT": spec.account,
        "SLURM_JOB_COMMENT": spec.comment,
        "SLURM_JOB_CONSTRAINTS": spec.features,
        "SLURM_JOB_EXTRA": spec.extra,
        "SLURM_JOB_QOS": spec.qos,
        "SLURM_JOB_RESERVATION": job.reservation,
        "SLURM_WCKEY": spec.wckey,
    }
    variables |= {name: value for name, value in optional.items() if value}
    if job.array_task_id is not None:
        variables["SLURM_ARRAY_JOB_ID"] = str(job.array_job_id)
        variables["SLURM_ARRAY_TASK_ID"] = str(job.array_task_id)
    if job.allocation is not None:
        variables["SLURM_JOB_NODELIST"] = hostlist.compress(job.allocation.names)
        here = [node for node in job.allocation.nodes if node.node == facts.name]
        if here and listed_gpus(here[0].gres):
            variables["SLURM_JOB_GPUS"] = listed_gpus(here[0].gres)
            variables |= gpu_variables(here[0].gres, facts.gpu_kinds)
    if context.startswith("epilog"):
        status = job.exit_status
        variables["SLURM_JOB_EXIT_CODE"] = str(status)
        variables["SLURM_JOB_EXIT_CODE2"] = f"{status >> 8 & 255}:{status & 127}"
        variables["SLURM_JOB_DERIVED_EC"] = str(job.derived_exit_status)
    return variables
