"""The specification of a step for its supervisor, made by the node daemon: a file in the step's spool directory.

Everything is resolved here: paths are expanded, CPUs are real ones, users are numbers. The supervisor decides nothing.

A step's spool directory (mode 0711, the daemon's own) holds
    step          its record (`stepd.record`): this spec, then process ids, then how it ended; complete up to the spec
                  before the supervisor is asked for, removed when the controller has acknowledged the end
    control       Unix socket where a restarted daemon finds the supervisor; the first to create this name
                  (supervisor, or a daemon that gives the step up by a plain file) owns the step
    slurm_script  the batch script, which the user can read and execute (`stepd.tasks.script`)
and beside such directories supervisor.PID is a second name of that supervisor's socket.
"""

from __future__ import annotations

import os

import msgspec

RECORD = "step"
CONTROL = "control"
SUPERVISOR = "supervisor."
SCRIPT = "slurm_script"

#: Variable that marks every process of a step (`marker`): what is left of a killed supervisor is found by it.
MARKER = "SPRITZ_STEP"

#: Standard stream of a task: through the client's connection.
CLIENT = ""
NOTHING = "/dev/null"


class TaskSpec(msgspec.Struct, frozen=True, array_like=True):
    """One task of this node. `environment` is added to the step's; `cpus` are real CPU numbers (empty: not bound).

    Streams are absolute paths, CLIENT or NOTHING.
    """

    task_id: int
    argv: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    stdin: str = NOTHING
    stdout: str = NOTHING
    stderr: str = NOTHING
    #: run as the user, with the task's process id, after the step's end; for containers that run elsewhere
    end: tuple[str, ...] = ()


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """The user that tasks run as."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    user: str = ""


class Pmi(msgspec.Struct, frozen=True, array_like=True):
    """The step's data for MPI programs (--mpi=pmi2): `size` tasks on `nodes` nodes, and which share a node.

    `program` is which of several the tasks here are: the component of a heterogeneous job.
    """

    job_id: str
    size: int
    nodes: int
    mapping: str
    program: int = 0


class Pmix(msgspec.Struct, frozen=True, array_like=True):
    """The step's data for MPI programs (--mpi=pmix): its nodes and the tasks' ranks on each, in local order.

    `node` is the own one's place among them; `universe` is how many tasks the job has room for. `apps` are the programs
    of the nodes' tasks, where they are several: components of a heterogeneous job. A node that components share is
    there for each of them.
    """

    namespace: str
    nodes: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    node: int
    universe: int
    apps: tuple[int, ...] = ()


class SupervisorSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step on one node. Times in seconds, memory in MiB; `label` is Slurm's `5.batch`, `5.0`."""

    job_id: int
    restart_count: int
    step_id: int
    label: str
    node: str
    node_index: int
    #: batch: one task, from `script`
    batch: bool = False
    script: bytes = b""
    identity: Identity
    tasks: tuple[TaskSpec, ...]
    #: environment shared by all tasks, `NAME=value` each
    environment: tuple[bytes, ...] = ()
    work_dir: str = "/"
    umask: int = 0o022
    #: added to the supervisor's own
    nice: int = 0
    #: (name without RLIMIT_, soft limit or -1)
    limits: tuple[tuple[str, int], ...] = ()
    append: bool = False
    io_address: str = ""
    io_key: str = ""
    #: the client takes numbered conversations (`stepd.protocol`)
    io_numbered: bool = False
    #: where the supervisor listens for those of `io_children` other nodes, and where it connects to that of the node
    #: above it; "": to the client. `io_parent_at`: address and port of that node's daemon, where it is another machine
    io_listen: str = ""
    io_children: int = 0
    io_parent: str = ""
    io_parent_at: tuple[str, int] = ("", 0)
    #: SlurmUser: on its machine slurmctld connects supervisors to clients of other machines
    relay_uid: int = 0
    unbuffered: bool = False
    #: tasks of the whole step, if lines in files are labelled (`srun --label`); 0: not labelled
    labelled_tasks: int = 0
    pty: bool = False
    pty_rows: int = 0
    pty_columns: int = 0
    #: 0: no limit
    memory_limit_mib: int = 0
    #: swap beyond it; -1: not limited
    swap_limit_mib: int = 0
    #: directory in the memory controller for the step's cgroup; "" if none may be created
    cgroup_memory: str = ""
    #: limits of the whole job here, as those of the step: of what is in that directory; without one, held by sampling
    job_memory_limit_mib: int = 0
    job_swap_limit_mib: int = 0
    #: the same for the controllers of devices and cores; "" if the step is not restricted
    cgroup_devices: str = ""
    cgroup_cores: str = ""
    #: directory in version 2 for freezing and killing; "" if none may be created
    cgroup_tree: str = ""
    #: private directories (first) and their places for tasks (second): job_container/tmpfs
    private_dirs: tuple[tuple[str, str], ...] = ()
    #: file systems mounted later by the machine are visible in the step: Shared of job_container.conf
    private_shared: bool = False
    #: device files that gres.conf names and the step does not have, and those that it has
    devices_denied: tuple[str, ...] = ()
    devices_given: tuple[str, ...] = ()
    #: real CPU numbers of the step; empty: all
    cores: tuple[int, ...] = ()
    #: programs run as the user before and after each task; what the first print as `export N=v` joins its environment
    task_prologs: tuple[str, ...] = ()
    task_epilogs: tuple[str, ...] = ()
    kill_wait_seconds: int = 30
    #: seconds after which processes that survive SIGKILL are given up, and the program to notify ("": none)
    unkillable_seconds: int = 60
    unkillable_program: str = ""
    #: a client that vanishes ends the step
    kill_without_client: bool = True
    #: seconds between samples of living processes, for peaks of usage; 0: none. Memory without a cgroup limit is
    #: sampled more often.
    sample_seconds: float = 30.0
    #: the memory that counts as resident in the record: "rss", "pss" (shared pages in parts) or "private" (none of
    #: them)
    memory_counted: str = "rss"
    #: sample what tasks use of GPUs
    gpu_accounting: bool = True
    #: count energy by counters of processors ("rapl") or of GPUs ("gpu"); "": not at all
    energy_source: str = ""
    #: serve PMI to the tasks; None: --mpi=none
    pmi: Pmi | None = None
    #: as that, for --mpi=pmix
    pmix: Pmix | None = None
    #: an /etc/hosts of the step's own, where the node's name resolves nowhere else
    hosts_file: str = ""
    #: how long each task's `end` may take
    end_seconds: float = 30.0
    #: made for the user's files of an OCI runtime, and removed with the step; "": none
    oci_directory: str = ""
    #: the Job, a stored value, for the daemon's Epilog after a restart; the supervisor does not look at it
    job: bytes = b""
    #: `job` is compressed (zlib)
    job_compressed: bool = False


def marker(directory: str) -> bytes:
    """`NAME=value` of the variable that marks every process of the step with this spool directory."""
    return b"%s=%s" % (MARKER.encode(), os.fsencode(directory))
