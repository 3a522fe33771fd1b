"""Input variables of sbatch, salloc and srun: which variable stands for which option, in the order Slurm reads them.

Later ones win: `SRUN_EXPORT_ENV` over `SLURM_EXPORT_ENV`. What the command line says wins over all of them.

Source: sbatch(1), salloc(1), srun(1) INPUT ENVIRONMENT VARIABLES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.options import NONE, refusal
from spritz.cli.submit.values import put

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.cli.options import Row
    from spritz.cli.submit.values import Values

#: read by all three with their own prefix; the option is the same in lower case unless `_ODD` says otherwise
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

#: What a step has of its job anyway. Differs: Slurm's srun reads these inside a job as well, so that each step asks by
#: number for all of the job's memory and devices, and no two steps run side by side unless they are told to.
_JOB_ONLY = (
    "SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_GPUS_PER_SOCKET "
    "SLURM_GRES SLURM_CPUS_PER_GPU SLURM_TRES_PER_TASK SLURM_JOB_NAME SLURM_TIMELIMIT SLURM_RESERVATION SLURM_EXCLUSIVE"
)
#: What a task's own environment says of the step that it belongs to, and not of one that it makes.
_OF_ENCLOSING_STEP = "SLURM_CPU_BIND SLURM_MEM_BIND SLURM_DISTRIBUTION"


#: What a job is told of its container. Steps are in none unless they ask for it (srun(1) names SRUN_CONTAINER).
_SAID = frozenset({"SLURM_CONTAINER", "SLURM_CONTAINER_ID"})


def table(command: str) -> tuple[tuple[str, str], ...]:
    """(variable, option) of `sbatch`, `salloc` or `srun`."""
    if command in _tables:
        return _tables[command]
    prefix, own = {"sbatch": ("SBATCH_", _SBATCH), "salloc": ("SALLOC_", _SALLOC), "srun": ("SLURM_", _SRUN)}[command]
    found = [(prefix + name, _option(name)) for name in f"{_SHARED} {own}".split()]
    if command == "srun":
        found = [each for each in found if each[0] not in _SAID]
    if command == "srun":
        found += [("SRUN_" + name, _option(name)) for name in _SRUN_OWN.split()]
    else:
        found += [("SLURM_CLUSTERS", "clusters"), ("SLURM_HINT", "hint")]
    _tables[command] = tuple(found)
    return _tables[command]


_PYXIS = "IMAGE MOUNTS WORKDIR NAME SAVE ENV MOUNT_HOME REMAP_ROOT ENTRYPOINT ENTRYPOINT_LOG WRITABLE READONLY"
_OF_PYXIS = frozenset("PYXIS_CONTAINER_" + name for name in _PYXIS.split())

#: what `table` has made, and the variables in it
_tables: dict[str, tuple[tuple[str, str], ...]] = {}
_names: dict[str, frozenset[str]] = {}


def _option(name: str) -> str:
    return _ODD.get(name) or name.lower().replace("_", "-")


def read(command: str, rows: Iterable[Row], environ: Mapping[str, str], *, inside: bool = False) -> Values:
    """Options that the environment gives. `inside`: srun makes a step of the job that it runs in.

    A flag is set by an empty value, `yes`, or a number that is not 0. Raises SpritzError for an option that is refused.
    """
    # Few of them are set, in most calls none: looking for each in the environment costs more than looking through it.
    known = _names.get(command)
    if known is None:
        known = frozenset(name for name, _option_name in table(command))
        if command != "salloc":  # what it starts reads them
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
        if row.key == "verbose" and value.isdigit():
            values["verbose"] = "1" * min(int(value), 9)  # as if -v were given so often
    if present & _OF_PYXIS:
        from spritz.cli.submit.container import read_variables

        values |= read_variables(environ)
    return values


def _is_job_only(variable: str, environ: Mapping[str, str]) -> bool:
    enclosed = "SLURM_STEP_ID" in environ
    return variable in _JOB_ONLY.split() or (enclosed and variable in _OF_ENCLOSING_STEP.split())


def _is_set(value: str) -> bool:
    return value == "" or value.lower() == "yes" or (value.lstrip("+-").isdigit() and int(value) != 0)
