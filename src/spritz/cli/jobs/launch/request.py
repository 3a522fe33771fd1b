"""Build a StepSpec from srun's options, and fields that the job and the step share.

Source: srun(1).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.jobs.submit import request_context
from spritz.model.errors import SpritzError
from spritz.model.job.step import StepSpec
from spritz.notation import nodecount

if TYPE_CHECKING:
    from spritz.cli.call.context import Context
    from spritz.cli.jobs.launch.listener import Listener
    from spritz.cli.jobs.launch.settings import Settings
    from spritz.cli.jobs.launch.streams.redirection import Streams
    from spritz.cli.jobs.submit.values import Values

Fields = dict[str, object]

#: Fields of the job request that mean the same for a step.
_SHARED = (
    "cpus_per_task",
    "tasks_per_node",
    "tasks_per_socket",
    "tasks_per_core",
    "tasks_per_gpu",
    "threads_per_core",
    "gpus_per_task",
    "gres_per_task",
    "gpu_bind",
    "cpu_bind",
    "memory_bind",
    "distribution",
    "overcommit",
    "open_mode",
    "sample_seconds",
    "container",
)
#: Fields that a step requests only inside an existing job.
_INSIDE = (
    "memory_mib_per_node",
    "memory_mib_per_cpu",
    "memory_mib_per_gpu",
    "gres_per_node",
    "gpus",
    "gpus_per_node",
    "gpus_per_socket",
    "cpus_per_gpu",
    "node_list",
    "exclude",
    "features",
    "time_limit_minutes",
)


def size_fields(fields: Fields, *, inside: bool) -> Fields:
    """The step's size and placement. `inside`: the step runs in an existing job. Raises SpritzError."""
    chosen = {name: fields[name] for name in _SHARED if name in fields}
    if inside:
        chosen |= {name: fields[name] for name in _INSIDE if name in fields}
        if fields.get("licenses_per_task"):
            raise SpritzError("licenses in --tres-per-task are not supported by Spritz for a step of an allocation")
        if fields.get("node_counts"):
            raise SpritzError("a list of --nodes is not supported by Spritz for a step of an allocation")
        if fields.get("nodes_given"):
            chosen |= {"nodes_min": fields["nodes_min"], "nodes_max": fields["nodes_max"]}
    if fields.get("tasks_given"):
        chosen["tasks"] = fields["tasks"]
    flags = fields.get("gres_flags")
    if isinstance(flags, tuple) and "allow-task-sharing" in flags and not chosen.get("gpu_bind"):
        chosen["gpu_bind"] = "none"
    return chosen


def own_fields(options: Values, argv: list[str], context: Context, *, inside: bool) -> Fields:
    """Fields that only steps have. --exclusive concerns the step inside an allocation, else the new job.

    Raises SpritzError for --signal inside an allocation: only a job's time limit causes that signal.
    """
    if inside and "signal" in options:
        raise SpritzError(
            "option --signal is not supported by Spritz for a step of an allocation",
            code="ESLURM_NOT_SUPPORTED",
            hint="give it to sbatch or salloc: a job's signal reaches its steps",
        )
    fields: Fields = {
        "name": options.get("job-name") or os.path.basename(argv[0]),
        "argv": () if "multi-prog" in options else tuple(argv),
        "overlap": "overlap" in options,
        # Since 20.11 steps never share CPUs by default; --exclusive limits the step to the CPUs that it requests.
        "exact": "exact" in options or ("exclusive" in options and inside),
        "exclusive": "exclusive" in options and inside,
        "preserve_env": "preserve-env" in options,
        "interactive": "interactive" in options,
        "gres_none": options.get("gres", "").lower() == "none",
        "kill_on_node_fail": "no-kill" not in options or options["no-kill"] == "off",
        "task_prolog": _program(options.get("task-prolog", ""), context),
        "task_epilog": _program(options.get("task-epilog", ""), context),
        "work_dir": os.path.join(context.cwd, options.get("chdir", "")).rstrip("/") or "/",
        "umask": _umask(context),
        "limits": tuple((limit.name, limit.soft) for limit in request_context.limits(options.get("propagate"))),
        "limits_asked": "propagate" in options,
        "submit_host": os.uname().nodename,
        "client_pid": context.pid,
    }
    if "resv-ports" in options:
        count = options["resv-ports"]
        fields["ports"] = nodecount.parse_count(count, "--resv-port", minimum=0) if count else 0
    if "relative" in options:
        fields["relative"] = nodecount.parse_count(options["relative"], "relative", minimum=0)
    return fields


def check_relative(fields: Fields, context: Context) -> None:
    """Raises SpritzError, in Slurm's words, if --relative and --nodes exceed the nodes of the allocation."""
    first, nodes, has = (
        fields.get("relative"),
        fields.get("nodes_min", 1),
        context.environ.get("SLURM_JOB_NUM_NODES", ""),
    )
    if isinstance(first, int) and isinstance(nodes, int) and has.isdecimal() and first + nodes > int(has):
        raise SpritzError(
            f"--relative and --nodes option incompatible with count of allocated nodes ({first}+{nodes}>{has})"
        )


def _program(name: str, context: Context) -> str:
    return os.path.join(context.cwd, name) if name and name != "none" else ""


def _umask(context: Context) -> int:
    """The step's umask: SLURM_UMASK, else that of srun."""
    text = context.environ.get("SLURM_UMASK", "")
    if text and len(text) <= 5 and not text.strip("01234567"):
        return int(text, 8) & 0o777
    return request_context.umask()


def step_spec(
    fields: Fields,
    streams: Streams,
    settings: Settings,
    listener: Listener,
    environment: dict[str, str],
    submit_line: list[str],
) -> StepSpec:
    """The StepSpec to send. Raises SpritzError for values that cannot be encoded."""
    return StepSpec(
        **fields,  # type: ignore[arg-type]  # names and types as in StepSpec
        environment=request_context.encoded(environment),
        stdin=streams.remote_stdin,
        stdout=streams.remote_stdout,
        stderr=streams.remote_stderr,
        label=settings.label,
        unbuffered=settings.unbuffered,
        pty=settings.pty,
        kill_on_bad_exit=settings.kill_on_bad_exit,
        mpi=settings.mpi,
        wait_seconds=settings.wait_seconds,
        io_address=listener.address,
        io_key=listener.key,
        tree_width=settings.tree_width,
        submit_line=" ".join(["srun", *submit_line]),
    )


def step_environment(options: Values, context: Context, listener: Listener) -> dict[str, str]:
    """The tasks' environment: srun's own, and variables that only srun knows."""
    environment = request_context.exported(context, options.get("export"))
    if "hint" in options:
        environment["SLURM_HINT"] = options["hint"]
    environment["SLURM_PRIO_PROCESS"] = str(os.getpriority(os.PRIO_PROCESS, 0))
    environment["SLURM_LAUNCH_NODE_IPADDR"] = environment["SLURM_SRUN_COMM_HOST"] = "127.0.0.1"
    environment["SLURM_SRUN_COMM_PORT"] = environment["SLURM_STEP_LAUNCHER_PORT"] = str(listener.port)
    # srun's log level; 3 is info.
    environment["SRUN_DEBUG"] = str(3 + len(options.get("verbose", "")) - len(options.get("quiet", "")))
    environment.setdefault("SLURM_SUBMIT_DIR", context.cwd)
    environment.setdefault("SLURM_SUBMIT_HOST", os.uname().nodename)
    if "preserve-env" not in options:
        for name in ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK"):
            environment.pop(name, None)
    return environment


def job_id_of(options: Values) -> int:
    """The job that the step belongs to: --jobid or SLURM_JOB_ID. Raises SpritzError."""
    text = options.get("jobid", "")
    if not (text.isascii() and text.isdigit() and len(text) < 11 and int(text)):
        raise SpritzError(f'Invalid numeric value "{text[:80]}" for --jobid.')
    return int(text)
