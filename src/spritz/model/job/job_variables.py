"""Environment variables about a job that more than one daemon or command sets: for its tasks, salloc's shell, and a
site's programs.

Source: sbatch(1), salloc(1) OUTPUT ENVIRONMENT VARIABLES; slurm.conf(5) PROLOG AND EPILOG SCRIPTS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.job.record import Job, JobRequest
    from spritz.model.resources import GresRequest

#: PATH of a site's programs
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def request_variables(spec: JobRequest) -> dict[str, str]:
    """The request; a variable is set only if its option was given."""
    numbers = {
        "SLURM_CPUS_PER_TASK": spec.cpus_per_task,
        "SLURM_NTASKS_PER_NODE": spec.tasks_per_node,
        "SLURM_NTASKS_PER_SOCKET": spec.tasks_per_socket,
        "SLURM_NTASKS_PER_CORE": spec.tasks_per_core,
        "SLURM_NTASKS_PER_GPU": spec.tasks_per_gpu,
        "SLURM_CPUS_PER_GPU": spec.cpus_per_gpu,
        "SLURM_THREADS_PER_CORE": spec.threads_per_core,
        "SLURM_MEM_PER_CPU": spec.memory_mib_per_cpu,
        "SLURM_MEM_PER_GPU": spec.memory_mib_per_gpu,
        "SLURM_MEM_PER_NODE": spec.memory_mib_per_node,
    }
    variables = {name: str(value) for name, value in numbers.items() if value is not None}
    requests = {
        "SLURM_GPUS": spec.gpus,
        "SLURM_GPUS_PER_NODE": spec.gpus_per_node,
        "SLURM_GPUS_PER_TASK": spec.gpus_per_task,
        "SLURM_GPUS_PER_SOCKET": spec.gpus_per_socket,
    }
    variables |= {name: _gpus_text(value) for name, value in requests.items() if value}
    if spec.gpu_bind:
        variables["SLURM_GPU_BIND"] = spec.gpu_bind
    if spec.distribution.startswith("plane="):
        variables |= {"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": spec.distribution[6:]}
    elif spec.distribution:
        variables["SLURM_DISTRIBUTION"] = spec.distribution
    if spec.overcommit:
        variables["SLURM_OVERCOMMIT"] = "1"
    return variables


def _gpus_text(requests: tuple[GresRequest, ...]) -> str:
    return ",".join(f"{request.type}:{request.count}" if request.type else str(request.count) for request in requests)


def site_variables(job: Job, cluster_name: str, slurm_conf: str) -> dict[str, str]:
    """Variables for a site's programs, on any machine."""
    spec, allocation = job.spec, job.allocation
    variables = {
        "PATH": SEARCH_PATH,
        "SLURM_CLUSTER_NAME": cluster_name,
        "SLURM_CONF": slurm_conf,
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_USER": spec.user or str(spec.uid),
        "SLURM_JOB_UID": str(spec.uid),
        "SLURM_JOB_GROUP": spec.group or str(spec.gid),
        "SLURM_JOB_GID": str(spec.gid),
        "SLURM_JOB_PARTITION": allocation.partition if allocation is not None else job.partition,
        "SLURM_JOB_WORK_DIR": spec.work_dir,
        "SLURM_JOB_RESTART_COUNT": str(job.restart_count),
        "SLURM_JOB_STDIN": spec.stdin,
        "SLURM_JOB_STDOUT": spec.stdout,
        "SLURM_JOB_STDERR": spec.stderr,
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
    return variables


def array_variables(job: Job) -> dict[str, str]:
    """Variables of an array task: its index, and the bounds of its array."""
    if job.array_task_id is None or not job.array_job_id:
        return {}
    variables = {"SLURM_ARRAY_JOB_ID": str(job.array_job_id), "SLURM_ARRAY_TASK_ID": str(job.array_task_id)}
    whole = job.array_of or job.array
    if whole is not None:
        variables |= {
            "SLURM_ARRAY_TASK_COUNT": str(whole.task_count),
            "SLURM_ARRAY_TASK_MIN": str(whole.task_min),
            "SLURM_ARRAY_TASK_MAX": str(whole.task_max),
            "SLURM_ARRAY_TASK_STEP": str(whole.task_step),
        }
    return variables


def ending_variables(job: Job) -> dict[str, str]:
    """How the job ended, for programs that run afterwards."""
    status = job.exit_status
    return {
        "SLURM_JOB_EXIT_CODE": str(status),
        "SLURM_JOB_EXIT_CODE2": f"{status >> 8 & 255}:{status & 127}",
        "SLURM_JOB_DERIVED_EC": str(job.derived_exit_status),
    }
