"""Commands about steps: create, signal, attach."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job.step import Step, StepSpec

#: Refusals of a step that pass with time.
STEP_WAITS = frozenset(("ESLURM_NODES_BUSY", "ESLURM_PROLOG_RUNNING", "ESLURM_PORTS_BUSY"))


class CreateStep(Struct, frozen=True, kw_only=True):
    """srun inside an allocation. Reply: `StepCreated`, then the controller launches it on its nodes.

    `ESLURM_NODES_BUSY` if other steps hold the resources; with `wait` the answer is delayed until they fit (the api
    waits; the core never does).

    `again`: a repeated request, after a connection broke. If the step with the same unique `io_key` exists, or existed
    recently, it is the answer: a request is carried out once, however often it is sent.
    """

    job_id: int
    spec: StepSpec
    wait: bool = False
    again: bool = False


class CreateHetStep(Struct, frozen=True, kw_only=True):
    """A step over components of the heterogeneous job `job_id`: (position of the component, its part), ascending.

    Otherwise as CreateStep; all parts are created, with one step id and one numbering of tasks, or none. Reply:
    `StepCreated`, whose `others` are the parts after the first.
    """

    job_id: int
    parts: tuple[tuple[int, StepSpec], ...]
    wait: bool = False
    again: bool = False


class StepCreated(Struct, frozen=True, kw_only=True):
    """Reply to CreateStep and CreateHetStep; `others`: the parts on further components."""

    step: Step
    messages: tuple[str, ...] = ()
    others: tuple[Step, ...] = ()


class SignalStep(Struct, frozen=True, kw_only=True):
    """Send a signal to every task of a step, or end the step (`terminate`: TERM, KillWait, KILL). Reply: `Done`."""

    job_id: int
    step_id: int
    signal: int = 0
    terminate: bool = False


class AttachStep(Struct, frozen=True, kw_only=True):
    """sattach: supervisors connect to an additional client, as with StepSpec.io_address. Reply: `StepCreated` with the
    step.
    """

    job_id: int
    step_id: int
    io_address: str
    io_key: str
