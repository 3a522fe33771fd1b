"""What users ask for in a run, drawn from its seed: pure data, which `users` carries out.

Jobs are named by tags, since their numbers are known only to whom the controller told them. A tag is the job's comment,
and its name unless it shares one (`Wanted.name`).
"""

from __future__ import annotations

from msgspec import Struct


class Dependence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition of --dependency, on the job with a tag."""

    #: after, afterany, afterok, afternotok, aftercorr, singleton
    kind: str
    tag: str = ""
    minutes: int = 0


class WantedStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that srun runs inside an allocation, or a script."""

    tasks: int = 1
    nodes: int = 1
    cpus_per_task: int = 1
    gpus: int = 0
    memory_mib: int = 0
    overlap: bool = False
    #: what its tasks do
    seconds: float = 1.0
    exit_status: int = 0
    #: seconds from the start of the script, or from the grant, to its request
    after_seconds: float = 0.0


class Wanted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as its user asks for it: what a checker compares with what nodes ran and what listings show."""

    tag: str
    #: job name, if it is not the tag
    name: str = ""
    #: batch, srun or salloc
    kind: str = "batch"
    script: str = ""
    environment: tuple[str, ...] = ()
    partition: str = ""
    nodes_min: int = 1
    #: 0: as many as nodes_min
    nodes_max: int = 0
    tasks: int = 1
    cpus_per_task: int = 1
    #: GPUs, by one of three options
    gpus: int = 0
    gpus_per_node: int = 0
    gpus_per_task: int = 0
    memory_mib_per_node: int = 0
    memory_mib_per_cpu: int = 0
    #: name -> count
    licenses: dict[str, int] = {}
    #: "0-9", "" for none; `throttle` is the number after %
    array: str = ""
    throttle: int = 0
    #: of a heterogeneous job: the components after the first
    components: tuple[Wanted, ...] = ()
    dependencies: tuple[Dependence, ...] = ()
    #: "all" or "any"
    dependency_mode: str = "all"
    kill_on_invalid_dependency: bool = False
    #: seconds since the epoch; 0.0: none
    begin_at: float = 0.0
    deadline_at: float = 0.0
    held: bool = False
    exclusive: bool = False
    #: --oversubscribe
    shares: bool = False
    reservation: str = ""
    account: str = ""
    qos: str = ""
    #: None: the partition's
    time_limit_minutes: int | None = None
    time_min_minutes: int | None = None
    #: --signal: number, seconds before the end, whether to the batch shell only
    end_signal: tuple[int, int, bool] | None = None
    #: None: the cluster's default
    requeue: bool | None = None
    nice: int = 0
    #: what its script, or its allocation's user, does
    seconds: float = 10.0
    exit_status: int = 0
    #: the script ends by this signal (0: it exits)
    killed_by: int = 0
    ignores_term: bool = False
    steps: tuple[WantedStep, ...] = ()


def script_of(tag: str, seconds: float, exit_status: int = 0, killed_by: int = 0, ignores_term: bool = False) -> str:
    """A batch script as the simulated supervisors run it."""
    plan = f"seconds={seconds:g} exit={exit_status} signal={killed_by}{' ignore=15' if ignores_term else ''}"
    return f"#!/bin/sh\n#SIM {plan}\n# tag {tag}\n"
