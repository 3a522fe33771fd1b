"""Checks that a JobSpec is valid in itself and against the configuration, for submissions and updates of pending jobs.

Raises `Refused` in Slurm's words. The order of the checks is Slurm's, so that the first complaint is the same.

Source: sbatch(1); slurm.conf(5) EnforcePartLimits, AllowAccounts …, MaxArraySize; recorded answers of Slurm 22.05.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.submission import fit
from spritz.core.decision import DecisionContext, Refused
from spritz.core.reservations import check_reservation
from spritz.core.rights import administers
from spritz.model.job.duties import FIELDS
from spritz.model.job.job_gpus import gpus_each_node
from spritz.model.limits import flags
from spritz.model.node.node_features import Unclear, ways
from spritz.model.node.partition import opens_to
from spritz.model.reasons import Reason
from spritz.model.rules import partition_limits
from spritz.model.rules.access import barrier
from spritz.model.rules.availability import queues_jobs
from spritz.model.rules.licenses import stock
from spritz.notation import extra, features
from spritz.notation.errors import NotationError, shown
from spritz.notation.layout import cpubind, distribution
from spritz.notation.licenses import LicenseError
from spritz.notation.licenses import parse as parse_licenses

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller, ClusterSettings
    from spritz.model.job.record import JobSpec
    from spritz.model.node.partition import Partition
    from spritz.model.resources import GresRequest

NICE_LIMIT = 2_147_483_645
#: Largest counts of 32 and 16 bits: in Slurm the two values above each stand for "unset" and "infinite".
COUNT_MAX = 0xFFFFFFFD
#: most bytes of the environment of a job or step: somewhat more than the kernel accepts for a program
ENVIRONMENT_BYTES_MAX = 8 * 1024 * 1024
CPU_COUNT_MAX = 0xFFFD


def chosen_partitions(state: State, names: tuple[str, ...]) -> list[Partition]:
    """The named partitions, or the default one. Refuses unknown names."""
    if not names:
        default = next((item for item in state.partitions.values() if item.default), None)
        if default is None:
            raise Refused("ESLURM_DEFAULT_PARTITION_NOT_SET")
        return [default]
    partitions = []
    for name in names:
        partition = state.partitions.get(name)
        if partition is None:
            raise Refused("ESLURM_INVALID_PARTITION_NAME").with_details(f"invalid partition specified: {name}")
        if partition not in partitions:
            partitions.append(partition)
    return partitions


def with_alternates(state: State, spec: JobSpec) -> JobSpec:
    """The request with alternates in place of partitions that take no jobs. Source: slurm.conf(5) Alternate."""
    names = spec.partitions or tuple(item.name for item in state.partitions.values() if item.default)
    open_names = tuple(dict.fromkeys(_open_name(state, name) for name in names))
    return spec if open_names == names else replace(spec, partitions=open_names)


def with_unique_nodes(spec: JobSpec) -> JobSpec:
    """The request with each node named once: a client may send `n1,n1`. With --distribution=arbitrary the required
    nodes stay: they name the node of each task.
    """
    required, excluded = spec.node_list, tuple(dict.fromkeys(spec.exclude))
    if not spec.distribution.lower().startswith("arbitrary"):
        required = tuple(dict.fromkeys(required))
    if (required, excluded) == (spec.node_list, spec.exclude):
        return spec
    return replace(spec, node_list=required, exclude=excluded)


def _open_name(state: State, name: str) -> str:
    """The first name in the chain of alternates whose partition takes jobs; the first name if none does."""
    seen: set[str] = set()
    partition = state.partitions.get(name)
    while partition is not None and not queues_jobs(partition) and partition.name not in seen:
        seen.add(partition.name)
        partition = state.partitions.get(partition.alternate)
    return partition.name if partition is not None and queues_jobs(partition) else name


def check_submission(
    context: DecisionContext, spec: JobSpec, *, queued: bool = False
) -> tuple[list[Partition], Reason]:
    """Check everything that a new job's spec must satisfy. The partitions of a `queued` job may be closed.

    Returns its partitions and the reason for which it waits all the same (or NONE).
    """
    state = context.state
    check_lengths(spec)
    check_submit_line(state.settings, spec.submit_line)
    _check_lists(state.settings, spec)
    _check_notation(spec)
    partitions = chosen_partitions(state, spec.partitions)
    _check_counts(spec, state.settings)
    _check_built(spec, state.settings)
    check_extra(state.settings, spec.extra)
    _check_names(state, spec)
    _check_gres(state.settings, spec)
    _check_licenses(state, spec)
    _check_times(spec, context.now)
    if spec.reboot:
        _check_reboot(context)
    _check_access(state, spec, partitions, context.caller)
    return partitions, _check_limits(state, spec, partitions, queued)


def _check_reboot(context: DecisionContext) -> None:
    if not administers(context.state, context.caller):
        raise Refused("ESLURM_ACCESS_DENIED", hint="only administrators may have nodes rebooted for a job")
    if not context.state.settings.power.reboots:
        raise Refused("ESLURM_NOT_SUPPORTED", hint="--reboot: RebootProgram is not configured")


#: most characters of each text; `node_list` and similar may be as long as the cluster has nodes
_LENGTHS = {name: duty.longest for name, duty in FIELDS.items() if duty.longest is not None}
_PARTITIONS_LENGTH = _LENGTHS.pop("partitions")
_LENGTH_MIN = min(_LENGTHS.values())
_texts = attrgetter(*_LENGTHS)
_INVALID_EXTRA = "Invalid extra constraints specification"


def check_lengths(spec: JobSpec) -> None:
    """Checked before any lookup, so that an error message never repeats a text of 100,000 letters."""
    # Quick test: nearly always all texts together are shorter than the least limit.
    if sum(map(len, filter(None, _texts(spec)))) > _LENGTH_MIN and any(
        len(text or "") > most for text, most in zip(_texts(spec), _LENGTHS.values(), strict=True)
    ):
        raise Refused("ESLURM_PATHNAME_TOO_LONG")
    if sum(map(len, spec.partitions)) + len(spec.partitions) > _PARTITIONS_LENGTH + 1:
        raise Refused("ESLURM_PATHNAME_TOO_LONG")


_listed = attrgetter("arguments", "clusters", "gres_flags", "mail_types", "exempt")


def _check_lists(settings: ClusterSettings, spec: JobSpec) -> None:
    """Arguments and other lists of texts were on the command line too: together they are no longer than it may be."""
    texts = [text for listed in _listed(spec) for text in listed]
    if spec.container is not None:
        texts += (*spec.container.mounts, *spec.container.environment)
    if texts and sum(map(len, texts)) > settings.max_submit_line_bytes:
        raise Refused(
            "ESLURM_PATHNAME_TOO_LONG",
            hint="the arguments are longer than a line may be (SchedulerParameters=max_submit_line_size is "
            f"{settings.max_submit_line_bytes} bytes)",
        )


def check_environment(environment: Iterable[bytes]) -> None:
    """The environment of a step, which its record holds."""
    if sum(map(len, environment)) > ENVIRONMENT_BYTES_MAX:
        raise Refused(
            "ESLURM_PATHNAME_TOO_LONG",
            hint=f"the environment is larger than {ENVIRONMENT_BYTES_MAX} bytes; --export=NONE leaves it out",
        )


def check_submit_line(settings: ClusterSettings, line: str) -> None:
    """Check the line that made a job or step: at most SchedulerParameters=max_submit_line_size bytes."""
    limit = settings.max_submit_line_bytes
    if len(line) > limit or len(line.encode(errors="replace")) > limit:
        raise Refused(
            "ESLURM_PATHNAME_TOO_LONG",
            hint=f"the command has {len(line)} characters; SchedulerParameters=max_submit_line_size is {limit} bytes",
        )


def check_open_mode(text: str) -> None:
    """--open-mode: `a` appends to the output files, `t` truncates them; "": as JobFileAppend says."""
    if text not in ("", "a", "t"):
        raise Refused("ESLURM_NOT_SUPPORTED", hint=f"{shown(text)} is no open mode: a (append) or t (truncate)")


def _check_notation(spec: JobSpec) -> None:
    """Check texts that are parsed only at launch, so that errors show at submission."""
    check_open_mode(spec.open_mode)
    for text, read in (
        (spec.distribution, distribution.parse),
        (spec.cpu_bind, cpubind.parse_cpu_bind),
        (spec.memory_bind, cpubind.parse_mem_bind),
        (spec.gpu_bind, cpubind.parse_gpu_bind),
    ):
        try:
            if text:
                read(text)
        except NotationError as error:
            raise Refused("ESLURM_BAD_DIST", hint=str(error)) from error


def check_extra(settings: ClusterSettings, text: str) -> None:
    """With SchedulerParameters=extra_constraints, --extra must be an expression over the extra data of nodes."""
    if not text or "extra_constraints" not in dict(settings.scheduler_parameters):
        return
    try:
        extra.parse(text)
    except extra.ExtraError as error:
        raise Refused("ESLURM_INVALID_EXTRA", message=_INVALID_EXTRA, hint=str(error)) from error


def _check_counts(spec: JobSpec, settings: ClusterSettings) -> None:
    if spec.node_counts and list(spec.node_counts) != sorted(spec.node_counts):
        raise Refused("ESLURM_INVALID_NODE_COUNT")
    if spec.nodes_min < 1 or spec.nodes_min > COUNT_MAX or (spec.nodes_max and spec.nodes_max < spec.nodes_min):
        raise Refused("ESLURM_INVALID_NODE_COUNT")
    if spec.tasks < 1 or spec.tasks > COUNT_MAX:
        raise Refused("ESLURM_BAD_TASK_COUNT")
    for value in (spec.tasks_per_node, spec.tasks_per_socket, spec.tasks_per_core, spec.tasks_per_gpu):
        if value is not None and value < 0:
            raise Refused("ESLURM_BAD_TASK_COUNT")
    if (spec.tasks_per_node or 0) > settings.max_tasks_per_node:
        raise Refused("ESLURM_BAD_TASK_COUNT")
    for value in (spec.cpus_per_task, spec.cpus_per_node_min, spec.cpus_per_gpu):
        if value is not None and not 0 < value <= CPU_COUNT_MAX:
            raise Refused("ESLURM_INVALID_CPU_COUNT")
    sizes = (spec.memory_mib_per_node, spec.memory_mib_per_cpu, spec.memory_mib_per_gpu)
    memory = [value for value in sizes if value is not None]
    if spec.tmp_mib < 0 or (memory and min(memory) < 0):
        raise Refused("ESLURM_INVALID_TASK_MEMORY")
    if len(memory) > 1:
        raise Refused("ESLURM_INVALID_TASK_MEMORY", hint="--mem, --mem-per-cpu and --mem-per-gpu exclude each other")
    if abs(spec.nice) > NICE_LIMIT:
        raise Refused("ESLURM_INVALID_NICE")
    if any(item.count < 0 for requests in _gres(spec) for item in requests):
        raise Refused("ESLURM_INVALID_GRES")


def _check_built(spec: JobSpec, settings: ClusterSettings) -> None:
    """Refuse, by name, options that are not built."""
    if spec.expedite and not settings.expedited_requeue:
        hint = "--requeue=expedite needs SlurmctldParameters=enable_expedited_requeue"
        raise Refused("ESLURM_NOT_SUPPORTED", hint=hint).with_details(hint)
    if spec.spread_segments and not spec.segment:
        hint = "--spread-segments needs --segment"
        raise Refused("ESLURM_REQUESTED_TOPO_CONFIG_UNAVAILABLE", hint=hint).with_details(hint)
    if spec.core_spec:
        raise Refused("ESLURM_NOT_SUPPORTED", hint="--core-spec is not supported")
    if spec.external and (spec.batch or spec.interactive):
        raise Refused("ESLURM_NOT_SUPPORTED", hint="EXTERNAL_JOB: an external job has no script and no command")
    if spec.external and {"SUSPEND", "GANG"} & set(settings.preemption.mode):
        hint = "EXTERNAL_JOB: external jobs cannot be suspended, so they need PreemptMode=CANCEL, REQUEUE or OFF"
        raise Refused("ESLURM_NOT_SUPPORTED", hint=hint)


def _check_names(state: State, spec: JobSpec) -> None:
    unknown = [name for name in (*spec.node_list, *spec.exclude) if name not in state.nodes]
    if unknown:
        raise Refused("ESLURM_INVALID_NODE_NAME", hint=f"there is no node {unknown[0]}")
    if spec.exclude and set(spec.node_list) & set(spec.exclude):
        raise Refused("ESLURM_INVALID_NODE_NAME", hint="a node is both required and excluded")
    if spec.features or spec.prefer:
        _check_wanted_features(state, spec)
    if spec.reservation:
        check_reservation(state, spec)
    else:
        qos = state.rules.qos.get(spec.qos)
        if qos is not None and flags.REQUIRES_RESERVATION in qos.flags:
            raise Refused("ESLURM_INVALID_QOS", hint=f"jobs of QOS {spec.qos} must name a reservation")


def _check_wanted_features(state: State, spec: JobSpec) -> None:
    options = {name for name, _value in state.settings.scheduler_parameters}
    check_features(state, spec.features, "ESLURM_INVALID_FEATURE", names="ignore_constraint_validation" not in options)
    try:
        ways(state.settings.features, spec.features)
    except Unclear as error:
        raise Refused("ESLURM_INVALID_FEATURE", hint=str(error)) from error
    check_features(state, spec.prefer, "ESLURM_INVALID_PREFER", names="ignore_prefer_validation" not in options)


def check_features(state: State, text: str, code: str, *, names: bool = True) -> None:
    """Refuse malformed constraints, and (with `names`) those that name a feature that no node has."""
    if not text:
        return
    try:
        tree = features.parse(text)
    except NotationError as error:
        raise Refused(code, hint=str(error)) from error
    if not names:
        return
    known = state.features
    if known is None:
        known = state.features = frozenset(name for node in state.nodes.values() for name in node.available)
    unknown = [name for name in features.names(tree) if name not in known]
    if unknown:
        raise Refused(code, hint=f"no node has feature {unknown[0]}")


def _check_gpus_agree(spec: JobSpec) -> None:
    """--gpus, --gpus-per-node and --gpus-per-task count the same GPUs, and must agree."""
    node = gpus_each_node(spec)
    total, task = (sum(item.count for item in items) for items in (spec.gpus, spec.gpus_per_task))
    if node and task and node % task:
        raise Refused("ESLURM_INVALID_GRES", hint=f"{node} GPUs per node are not a multiple of {task} per task")
    if node and total:
        nodes = total // node
        most = spec.nodes_max or spec.nodes_min
        if total % node or (spec.nodes_given and not spec.nodes_min <= nodes <= most):
            raise Refused("ESLURM_INVALID_GRES", hint=f"a total of {total} GPUs does not agree with {node} per node")


#: all GRES that a job asks for
_gres = attrgetter("gres_per_node", "gpus", "gpus_per_node", "gpus_per_task", "gpus_per_socket", "gres_per_task")


#: GRES that are shares of GPUs
SHARES = frozenset({"mps", "shard"})


def _check_gres(settings: ClusterSettings, spec: JobSpec) -> None:
    known_gres, groups = settings.gres_types, _gres(spec)
    if not any(groups):
        return
    for requests in groups:
        for item in requests:
            # a count of 0 may name anything
            if item.count and item.name not in known_gres:
                raise Refused("ESLURM_INVALID_GRES", hint=f"{item.name} is not in GresTypes")
    names = {item.name for requests in groups for item in requests if item.count}
    if "gpu" in names and names & SHARES:
        raise Refused("ESLURM_INVALID_GRES", hint="a job can have whole GPUs or shares of GPUs, not both")
    _check_types([item for requests in groups for item in requests])
    _check_gpus_agree(spec)
    counted = spec.gpus or spec.tasks_given or spec.tasks_per_node or spec.nodes_given
    if spec.gpus_per_task and not counted:
        raise Refused("ESLURM_INVALID_GRES", hint="--gpus-per-task needs --ntasks, --nodes or --gpus")
    if spec.gres_per_task and not counted:
        raise Refused("ESLURM_INVALID_GRES", hint="--tres-per-task needs --ntasks or --nodes")
    total, per_task = sum(item.count for item in spec.gpus), sum(item.count for item in spec.gpus_per_task)
    if total and per_task and (total % per_task or (spec.tasks_given and total != per_task * spec.tasks)):
        raise Refused("ESLURM_INVALID_GRES", hint="--gpus must be --gpus-per-task times --ntasks")
    if spec.gpus_per_socket and not spec.sockets_per_node:
        raise Refused("ESLURM_INVALID_GRES", hint="--gpus-per-socket needs --sockets-per-node")


def _check_types(requests: list[GresRequest]) -> None:
    """Refuse requests for the same GRES both with and without a type."""
    typed = {item.name for item in requests if item.type}
    if any(not item.type and item.name in typed for item in requests):
        raise Refused("ESLURM_INVALID_GRES_TYPE")


def _check_licenses(state: State, spec: JobSpec) -> None:
    if not spec.licenses:
        return
    settings, known_licenses = state.settings, stock(state.settings.licenses, state.rules.licenses)
    try:
        choices = parse_licenses(spec.licenses)
    except LicenseError as error:
        raise Refused("ESLURM_INVALID_LICENSES") from error
    # With allow_zero_lic a job may wait for more licenses than exist at present.
    more = any(name == "allow_zero_lic" for name, _value in settings.scheduler_parameters)
    if not any(
        all(name in known_licenses and (more or count <= known_licenses[name]) for name, count in needs.items())
        for needs in choices
    ):
        raise Refused("ESLURM_INVALID_LICENSES")


def _check_times(spec: JobSpec, now: float) -> None:
    limit, shortest = spec.time_limit_minutes, spec.time_min_minutes
    if limit is not None and limit < 0:
        raise Refused("ESLURM_INVALID_TIME_LIMIT")
    if shortest is not None and limit and shortest > limit:
        raise Refused("ESLURM_INVALID_TIME_MIN_LIMIT")
    if not spec.deadline_at:
        return
    if spec.deadline_at < max(now, spec.begin_at):
        raise Refused("ESLURM_INVALID_TIME_LIMIT", hint="the job could not end before its --deadline")
    # A --time that is too long is accepted, as in Slurm: the job ends as DEADLINE (`timers.pending_deadline`).
    if shortest and spec.deadline_at < max(now, spec.begin_at) + shortest * 60.0:
        raise Refused("ESLURM_INVALID_TIME_MIN_LIMIT", hint="the job could not end before its --deadline")


def _check_access(state: State, spec: JobSpec, partitions: list[Partition], caller: Caller) -> None:
    """Check that the user may use the partitions.

    Partitions that are closed only to the user's groups are skipped if another is open and EnforcePartLimits does not
    ask for all.
    """
    closed: list[Refused] = []
    for partition in partitions:
        try:
            check_access(partition, spec, caller)
        except Refused as error:
            if error.rejection.code != "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP":
                raise
            closed.append(error)
    everywhere = state.settings.enforce_part_limits.upper() in ("ALL", "YES")
    if closed and (everywhere or len(closed) == len(partitions)):
        raise closed[0]


def check_access(partition: Partition, spec: JobSpec, caller: Caller) -> None:
    """Check that the user may use the partition at all."""
    if partition.root_only and not caller.admin:
        raise Refused("ESLURM_ACCESS_DENIED")
    if partition.disable_root_jobs and spec.uid == 0:
        raise Refused("ESLURM_USER_ID_MISSING")
    names = caller.group_names if caller.uid == spec.uid else (spec.group,)
    if spec.uid != 0 and not caller.admin and not opens_to(partition, names):
        raise Refused("ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP")
    if partition.allow_alloc_nodes and spec.submit_host and spec.submit_host not in partition.allow_alloc_nodes:
        raise Refused("ESLURM_ACCESS_DENIED")
    if partition.require_reservation and not spec.reservation:
        raise Refused("ESLURM_ACCESS_DENIED")


def _check_limits(state: State, spec: JobSpec, partitions: list[Partition], queued: bool) -> Reason:
    """Check states, limits and sizes of the partitions.

    With EnforcePartLimits=NO a job that exceeds a limit waits, and this is its reason.
    """
    refusals: list[Refused] = []
    reasons: list[Reason] = []
    for partition in partitions:
        if not queues_jobs(partition) and not queued:
            refusals.append(Refused("ESLURM_PARTITION_NOT_AVAIL"))
            continue
        # A held job is checked when it is released, as in Slurm.
        refusal = None if spec.hold else _misfit_refusal(state, spec, partition)
        if refusal is not None:
            refusals.append(refusal)
            continue
        reasons.append(limit_reason(spec, partition, state.settings, state.rules.placing(spec.qos)))
    if not reasons:
        raise refusals[0]
    enforced = state.settings.enforce_part_limits.upper()
    exceeded_reasons = [reason for reason in reasons if reason is not Reason.NONE]
    if exceeded_reasons and (
        enforced in ("ALL", "YES") or (enforced == "ANY" and len(exceeded_reasons) == len(reasons))
    ):
        raise Refused(_LIMIT_CODES[exceeded_reasons[0]])
    return Reason.NONE if len(exceeded_reasons) < len(reasons) else exceeded_reasons[0]


def _misfit_refusal(state: State, spec: JobSpec, partition: Partition) -> Refused | None:
    problem = fit.misfit(state, spec, partition)
    if problem is None:
        return None
    refused = Refused("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE")
    return refused.with_details(problem) if problem else refused


_LIMIT_CODES = {
    Reason.ACCOUNT_NOT_ALLOWED: "ESLURM_INVALID_ACCOUNT",
    Reason.QOS_NOT_ALLOWED: "ESLURM_INVALID_QOS",
    Reason.PARTITION_TIME_LIMIT: "ESLURM_INVALID_TIME_LIMIT",
    Reason.PARTITION_NODE_LIMIT: "ESLURM_INVALID_NODE_COUNT",
    Reason.MAX_MEMORY_PER_LIMIT: "ESLURM_INVALID_TASK_MEMORY",
}


def limit_reason(
    spec: JobSpec, partition: Partition, settings: ClusterSettings, lifted: frozenset[str] = flags.NONE
) -> Reason:
    """The rule of the partition (or limit of the cluster) that the job violates, as its reason for waiting.

    `lifted`: flags of its QOS, which may lift some limits.
    """
    barred = barrier(partition, spec.account, spec.qos)
    return partition_limits.exceeded(spec, partition, settings, lifted) if barred is None else barred[0]
