"""Input variables of sbatch, salloc and srun: the option of each variable, in the order in which Slurm reads them.

Later variables win: `SRUN_EXPORT_ENV` over `SLURM_EXPORT_ENV`. The command line overrides all of them.

Source: sbatch(1), salloc(1), srun(1) INPUT ENVIRONMENT VARIABLES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.options import NONE, refusal
from spritz.cli.jobs.submit.values import put

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.cli.call.options import Row
    from spritz.cli.jobs.submit.values import Values

#: Variables of all three commands, each with the command's prefix. The option has the same name in lower case, except
#: for those in `_ODD`.
_SHARED = (
    "ACCOUNT ACCTG_FREQ BURST_BUFFER CLUSTERS CONSTRAINT CONTAINER CONTAINER_ID CORE_SPEC CPU_FREQ_REQ CPUS_PER_GPU "
    "DEBUG DELAY_BOOT EXCLUSIVE GPU_BIND GPU_FREQ GPUS GPUS_PER_NODE GPUS_PER_SOCKET GPUS_PER_TASK GRES GRES_FLAGS "
    "HINT MEM_BIND MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE NETWORK NO_KILL OVERCOMMIT PARTITION POWER PREFER PROFILE QOS "
    "REQ_SWITCH RESERVATION SEGMENT_SIZE SIGNAL SPREAD_JOB THREAD_SPEC THREADS_PER_CORE TIMELIMIT TRES_BIND "
    "TRES_PER_TASK USE_MIN_NODES WCKEY"
)
_ODD = {
    "ARRAY_INX": "array",
    "BURST_BUFFER": "bb",
    "CPU_FREQ_REQ": "cpu-freq",
    "DEBUG": "verbose",
    "MEM_PER_NODE": "mem",
    "REQ_SWITCH": "switches",
    "SEGMENT_SIZE": "segment",
    "TIMELIMIT": "time",
    "KILL_CMD": "kill-command",
    "EXPORT_ENV": "export",
    "JOB_ID": "jobid",
    "JOB_NUM_NODES": "nodes",
    "NNODES": "nodes",
    "NPROCS": "ntasks",
    "KILL_BAD_EXIT": "kill-on-bad-exit",
    "LABELIO": "label",
    "MPI_TYPE": "mpi",
    "REMOTE_CWD": "chdir",
    "WORKING_DIR": "chdir",
    "STDINMODE": "input",
    "STDOUTMODE": "output",
    "STDERRMODE": "error",
    "STEP_GRES": "gres",
    "UNBUFFEREDIO": "unbuffered",
}
_SBATCH = (
    "ARRAY_INX DISTRIBUTION ERROR EXPORT GET_USER_ENV IGNORE_PBS INPUT JOB_NAME NO_REQUEUE OPEN_MODE OUTPUT REQUEUE "
    "WAIT WAIT_ALL_NODES"
)
_SALLOC = "BELL IMMEDIATE KILL_CMD NO_BELL WAIT_ALL_NODES"
_SRUN = (
    "BCAST BCAST_EXCLUDE COMPRESS CPU_BIND DEPENDENCY DISABLE_STATUS DISTRIBUTION EPILOG EXACT EXPORT_ENV IMMEDIATE "
    "JOB_ID JOB_NAME JOB_NUM_NODES NNODES KILL_BAD_EXIT LABELIO MPI_TYPE NPROCS NTASKS NTASKS_PER_CORE NTASKS_PER_GPU "
    "NTASKS_PER_NODE NTASKS_PER_SOCKET OPEN_MODE OVERLAP PROLOG REMOTE_CWD RESV_PORTS SEND_LIBS STDERRMODE STDINMODE "
    "STDOUTMODE STEP_GRES TASK_EPILOG TASK_PROLOG THREADS UNBUFFEREDIO WAIT WORKING_DIR"
)
_SRUN_OWN = "CONTAINER CPUS_PER_TASK ERROR EXPORT_ENV INPUT OUTPUT"

#: Variables of the job that a step ignores, since it inherits the job's resources. Differs: Slurm's srun reads them
#: inside a job too, so each step requests all of the job's memory and devices, and steps cannot run in parallel.
_JOB_ONLY = (
    "SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_GPUS_PER_SOCKET "
    "SLURM_GRES SLURM_CPUS_PER_GPU SLURM_TRES_PER_TASK SLURM_JOB_NAME SLURM_TIMELIMIT SLURM_RESERVATION SLURM_EXCLUSIVE"
)
#: Variables that describe the step of the calling task, not a step that the task creates.
_OF_ENCLOSING_STEP = "SLURM_CPU_BIND SLURM_MEM_BIND SLURM_DISTRIBUTION"


#: Variables that describe the job's container. Steps have no container unless they request it (srun(1):
#: SRUN_CONTAINER).
_SAID = frozenset({"SLURM_CONTAINER", "SLURM_CONTAINER_ID"})


def table(command: str) -> tuple[tuple[str, str], ...]:
    """(variable, option) pairs of `sbatch`, `salloc` or `srun`, in the order in which they are read."""
    if command in _tables:
        return _tables[command]
    prefix, names = {"sbatch": ("SBATCH_", _SBATCH), "salloc": ("SALLOC_", _SALLOC), "srun": ("SLURM_", _SRUN)}[command]
    pairs = [(prefix + name, _option(name)) for name in f"{_SHARED} {names}".split()]
    if command == "srun":
        pairs = [pair for pair in pairs if pair[0] not in _SAID]
        pairs += [("SRUN_" + name, _option(name)) for name in _SRUN_OWN.split()]
    else:
        pairs += [("SLURM_CLUSTERS", "clusters"), ("SLURM_HINT", "hint")]
    _tables[command] = tuple(pairs)
    return _tables[command]


_PYXIS = "IMAGE MOUNTS WORKDIR NAME SAVE ENV MOUNT_HOME REMAP_ROOT ENTRYPOINT ENTRYPOINT_LOG WRITABLE READONLY"
_OF_PYXIS = frozenset("PYXIS_CONTAINER_" + name for name in _PYXIS.split())

#: Results of `table`, and the names of the variables in each.
_tables: dict[str, tuple[tuple[str, str], ...]] = {}
_names: dict[str, frozenset[str]] = {}


def _option(name: str) -> str:
    return _ODD.get(name) or name.lower().replace("_", "-")


def read(command: str, rows: Iterable[Row], environ: Mapping[str, str], *, inside: bool = False) -> Values:
    """Options from the environment. `inside`: srun creates a step in the job that it runs in.

    An empty value, `yes`, or a number other than 0 sets a flag. Raises SpritzError for a refused option.
    """
    # Most calls set none of these: intersecting the names once costs less than looking up each.
    known = _names.get(command)
    if known is None:
        known = frozenset(name for name, _option_name in table(command))
        if command != "salloc":  # the program that salloc starts reads them
            known |= _OF_PYXIS
        _names[command] = known
    present = known.intersection(environ)
    values: Values = {}
    if not present:
        return values
    by_name = {row.name: row for row in rows}
    for variable, option in table(command):
        if variable not in present:
            continue
        value = environ[variable]
        if inside and _is_job_only(variable, environ):
            continue
        row = by_name.get(option)
        if row is None:
            continue
        flag = row.argument == NONE
        if flag and not _is_set(value):
            continue
        if row.refused:
            raise refusal(row)
        put(values, row.key, "" if flag else value)
        if row.key == "verbose" and value.isdecimal():
            values["verbose"] = "1" * min(int(value), 9)  # as if -v were repeated that many times
    if present & _OF_PYXIS:
        from spritz.cli.jobs.submit.container import read_variables

        values |= read_variables(environ)
    return values


def _is_job_only(variable: str, environ: Mapping[str, str]) -> bool:
    enclosed = "SLURM_STEP_ID" in environ
    return variable in _JOB_ONLY.split() or (enclosed and variable in _OF_ENCLOSING_STEP.split())


def _is_set(value: str) -> bool:
    return value == "" or value.lower() == "yes" or (value.lstrip("+-").isdecimal() and int(value) != 0)
