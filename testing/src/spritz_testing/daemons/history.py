"""What users and nodes saw: the only thing that the checks read.

Users (simulated clients) write `Operation` and `Reading`; simulated supervisors of steps, which stand for the machine's
processes, write `Began`, `Ended`, `Signalled` and `Booted`; `accounting` rows are read at the end. No daemon writes
here: a rule that read a daemon's own records could not find that these are wrong.

Times are seconds of virtual time, the same for all writers whatever their clocks say. Order of the list is the order in
which things happened.
"""

from __future__ import annotations

from enum import Enum
from signal import SIGKILL
from typing import Any

from msgspec import Struct


class Outcome(Enum):
    """How a request ended for its caller."""

    DONE = "done"
    REFUSED = "refused"
    #: the answer was lost, or the caller died: the request may or may not have been carried out, once
    UNKNOWN = "unknown"


class Operation(Struct, kw_only=True):
    """A request of a user that changes something, from the call to its answer."""

    id: int
    #: whose client: "user3", "operator"
    client: str
    #: submit, allocate (srun, salloc), step, cancel, hold, release, update, suspend, resume, requeue, signal, top,
    #: reserve, drain, undrain, node_add, node_delete, reconfigure, take_over, set_trigger, external
    kind: str
    uid: int
    called_at: float
    #: None while it is under way, and for UNKNOWN
    answered_at: float | None = None
    outcome: Outcome = Outcome.UNKNOWN
    #: the job that it names; of a submission: the job that the answer names
    job_id: int = 0
    #: what was asked: of a submission `wanted.Wanted`, of a change of a job `wanted.Change`, of `reserve`
    #: `wanted.Reserved`, of `unreserve` its name, of `set_trigger` `wanted.Triggered`; of a step its job and shape
    wanted: Any = None
    #: code of the refusal, or details of the answer
    answer: Any = None


class Reading(Struct, kw_only=True):
    """What a user was shown, by `kind`:

    squeue           (job id, state, reason) of every job that is not over, of all users
    job              (job id, state, reason, fields) of some jobs; `fields`: values of JobSpec by name
    sacct            records
    expected_starts  (job id, planned start) of blocked jobs, highest priority first
    """

    client: str
    kind: str
    called_at: float
    answered_at: float
    rows: Any


class Began(Struct, kw_only=True):
    """A step's processes began on a node: the effect that no controller can take back."""

    at: float
    node: str
    job_id: int
    restart_count: int
    #: model.ids: STEP_BATCH, STEP_EXTERN or a number
    step_id: int
    uid: int
    #: abstract CPU ids of the node that the step's job holds there, and those of the step
    job_cpus: frozenset[int]
    step_cpus: frozenset[int]
    #: GRES instances of the job on the node: ("gpu", index)
    gres: frozenset[tuple[str, int]]
    memory_mib: int
    #: whether others may use the same CPUs by agreement (OverSubscribe), or it overlaps its job's steps
    shares: bool
    #: of the script as it was launched; "" for a step
    script: str
    #: of the environment
    environment: dict[str, str]
    task_ids: tuple[int, ...]
    #: GRES instances that the step has asked for, and has alone among the steps of its job
    step_gres: frozenset[tuple[str, int]] = frozenset()
    #: ports that the step may listen on (srun --resv-ports)
    ports: tuple[int, ...] = ()
    #: which call of srun made the step; "" if none did
    call: str = ""
    #: as in the `Job` of the launch message: 0 and None if it is no task of an array, 0 if it is no component
    array_job_id: int = 0
    array_task_id: int | None = None
    het_job_id: int = 0
    #: when a supervisor took the step over, to begin it; 0.0: not known
    taken_at: float = 0.0


class Ended(Struct, kw_only=True):
    """The last process of a step ended on a node."""

    at: float
    node: str
    job_id: int
    restart_count: int
    step_id: int
    exit_code: int
    #: that killed it; 0: it exited
    signal: int
    #: the machine died with it: nobody learns its exit code
    lost: bool = False
    #: its supervisor died before it had written or told the end: the daemon finds a step that was killed
    untold: bool = False

    @property
    def status(self) -> int:
        """Its wait status as daemons can learn it."""
        return SIGKILL if self.untold else self.exit_code << 8 | self.signal


class Signalled(Struct, kw_only=True):
    """A signal reached a step's processes. However they were stopped and continued, it is 19 (SIGSTOP) and 18
    (SIGCONT)."""

    at: float
    node: str
    job_id: int
    restart_count: int
    step_id: int
    number: int


class Booted(Struct, kw_only=True):
    """A machine lost power, or was rebooted: all its processes are gone."""

    at: float
    node: str


class Injected(Struct, kw_only=True):
    """A fault, from `at` to `until`. Checks use it for liveness only: what must move after the last fault."""

    at: float
    until: float
    #: one of `faults.KINDS`
    kind: str
    target: str


#: As the kind of `Acted`: no order, but a controller's answer to a node's registration.
REGISTERED = "Registered"


class Acted(Struct, kw_only=True):
    """A node received an order of a controller process and accepted it, or was registered by it: who led when."""

    at: float
    host: str
    #: of the process; 0, and no host: passed on by other nodes, from a controller that is gone
    pid: int
    term: int
    #: of the message: LaunchBatch, TerminateJob …; of SuspendTasks that continues them: ResumeTasks; or `REGISTERED`
    kind: str
    #: that accepted it
    node: str = ""
    #: what the order is about, the same for each repetition: "12.0 life 1"
    subject: str = ""
    #: of a suspension or its end: `launch.SuspendTasks.version`
    version: int = 0


class Linked(Struct, kw_only=True):
    """A node was told by a controller that it is registered: orders reach it over this connection from now on."""

    at: float
    node: str


class Fired(Struct, kw_only=True):
    """The program of a trigger began on a controller's host."""

    at: float
    host: str
    name: str


class Left(Struct, kw_only=True):
    """A client of a job (srun, salloc) is gone: it has ended, or was killed."""

    at: float
    client: str
    #: ids of what it had asked
    operations: tuple[int, ...]


Entry = Operation | Reading | Began | Ended | Signalled | Booted | Injected | Acted | Linked | Fired | Left


class History:
    """The entries in order. An Operation is entered at its call, and completed at its answer."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._operations = 0

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)

    def begin(self, client: str, uid: int, kind: str, at: float, *, job_id: int = 0, wanted: Any = None) -> Operation:
        """Enter a request that is being made."""
        self._operations += 1
        operation = Operation(
            id=self._operations, client=client, uid=uid, kind=kind, called_at=at, job_id=job_id, wanted=wanted
        )
        self.entries.append(operation)
        return operation
