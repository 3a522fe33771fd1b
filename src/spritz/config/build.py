"""Makes the records that core, scheduling and node machine read from a checked configuration.

Pure. Decides nothing that `check` has not reported: contradictions are settled as `geometry` and `gres` settle them.

Source: slurm.conf(5), gres.conf(5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.config.check import specs_of
from spritz.config.geometry import geometry
from spritz.config.gres import capacity
from spritz.config.mcs import mcs_policy
from spritz.config.power import power_policy
from spritz.config.schema.status import HONOURED
from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.cluster.priority import PriorityPolicy
from spritz.model.cluster.settings import ClusterSettings, NodeSet
from spritz.model.ids import INFINITE
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.resources import NodeCapacity
from spritz.model.states import PartitionState
from spritz.notation import hostlist

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.config.gres import GresFile
    from spritz.config.kinds import Value
    from spritz.config.settings import Settings
    from spritz.config.typed import NodeLine, NodeSetLine, Parsed, PartitionLine
    from spritz.model.cluster.topology import Topology


def cluster_settings(
    have: Settings, topologies: tuple[Topology, ...] = (), nodesets: Sequence[NodeSetLine] = ()
) -> ClusterSettings:
    """The settings that decisions depend on."""
    number, flag, text, words = have.integer, have.flag, have.text, have.words
    consumable, memory = _consumables(have)
    select = set(words("SelectTypeParameters"))
    defaults = ClusterSettings()
    return ClusterSettings(
        cluster_name=have.cluster_name,
        slurm_user=text("SlurmUser"),
        first_job_id=number("FirstJobId"),
        max_job_id=number("MaxJobId"),
        max_job_count=number("MaxJobCount"),
        max_array_size=number("MaxArraySize"),
        max_step_count=number("MaxStepCount"),
        max_tasks_per_node=number("MaxTasksPerNode"),
        max_node_count=number("MaxNodeCount"),
        cpu_bind=_default_binding(have),
        node_sets=tuple(NodeSet(name=line.name, feature=line.feature) for line in nodesets if line.feature),
        min_job_age_seconds=number("MinJobAge"),
        kill_wait_seconds=number("KillWait"),
        kill_on_bad_exit=flag("KillOnBadExit"),
        wait_seconds=number("WaitTime"),
        inactive_limit_seconds=number("InactiveLimit"),
        over_time_minutes=number("OverTimeLimit"),
        reservation_over_run_minutes=None if number("ResvOverRun") >= INFINITE else number("ResvOverRun"),
        slurmd_timeout_seconds=number("SlurmdTimeout"),
        return_to_service=number("ReturnToService"),
        job_requeue=flag("JobRequeue"),
        max_batch_requeue=number("MaxBatchRequeue"),
        requeue_delay_seconds=float(
            _option(have, "SchedulerParameters", "requeue_delay", int(defaults.requeue_delay_seconds))
        ),
        cloud_memory_percent=_memory_percent(have) or defaults.cloud_memory_percent,
        memory_percent=_memory_percent(have) or defaults.memory_percent,
        user_deletes_reservations=have.has_option("SlurmctldParameters", "user_resv_delete"),
        expedited_requeue=have.has_option("SlurmctldParameters", "enable_expedited_requeue"),
        drain_failing_nodes=_option(have, "SlurmctldParameters", "drain_failing_nodes", 0),
        failing_node_seconds=_option(
            have, "SlurmctldParameters", "failing_node_seconds", defaults.failing_node_seconds
        ),
        requeue_exit=exit_codes(words("RequeueExit")),
        requeue_exit_hold=exit_codes(words("RequeueExitHold")),
        enforce_part_limits=text("EnforcePartLimits"),
        default_memory_mib_per_cpu=number("DefMemPerCPU"),
        default_memory_mib_per_node=number("DefMemPerNode"),
        default_memory_mib_per_gpu=number("DefMemPerGPU"),
        default_cpus_per_gpu=number("DefCpuPerGPU"),
        max_memory_mib_per_cpu=number("MaxMemPerCPU"),
        max_memory_mib_per_node=number("MaxMemPerNode"),
        gres_types=words("GresTypes"),
        consumable=consumable,
        memory_consumable=memory,
        one_task_per_core="CR_ONE_TASK_PER_CORE" in select,
        least_loaded="CR_LLN" in select,
        pack_nodes="CR_Pack_Nodes" in select,
        block_cores="CR_CORE_DEFAULT_DIST_BLOCK" in select,
        enforce_gres_binding="ENFORCE_BINDING_GRES" in select,
        least_loaded_shares="LL_SHARED_GRES" in select,
        several_sharing="MULTIPLE_SHARING_GRES_PJ" in select,
        one_task_per_sharing="ONE_TASK_PER_SHARING_GRES" in select,
        select_linear=text("SelectType") == "select/linear",
        scheduler_parameters=_pairs(words("SchedulerParameters")),
        scheduler_builtin=text("SchedulerType") == "sched/builtin",
        priority_multifactor=text("PriorityType") == "priority/multifactor",
        priority_weight_age=number("PriorityWeightAge"),
        priority_max_age_seconds=number("PriorityMaxAge"),
        priority_weight_jobsize=number("PriorityWeightJobSize"),
        priority_weight_partition=number("PriorityWeightPartition"),
        priority_policy=priority_policy(have),
        job_file_append=flag("JobFileAppend"),
        mpi_ports=_ports(have.option("MpiParams", "ports") or ""),
        crontabs="enable" in words("ScronParameters"),
        explicit_scancel="explicit_scancel" in words("ScronParameters"),
        kill_invalid_dependency=have.has_option("DependencyParameters", "kill_invalid_depend"),
        max_dependency_depth=_option(have, "DependencyParameters", "max_depend_depth", defaults.max_dependency_depth),
        max_script_bytes=_option(have, "SchedulerParameters", "max_script_size", defaults.max_script_bytes),
        max_submit_line_bytes=_option(
            have, "SchedulerParameters", "max_submit_line_size", defaults.max_submit_line_bytes
        ),
        licenses=_licenses(words("Licenses")),
        enforce=enforced(words("AccountingStorageEnforce")),
        private_data=_private(words("PrivateData")),
        track_wckey=flag("TrackWCKey") or "wckeys" in enforced(words("AccountingStorageEnforce")),
        prolog_slurmctld=bool(text("PrologSlurmctld")),
        complete_wait_seconds=number("CompleteWait"),
        prolog_flags=_prolog_flags(words("PrologFlags")),
        preemption=preemption_policy(have),
        mcs=mcs_policy(have),
        power=power_policy(have),
        topologies=topologies,
        topology_optional="TopoOptional" in words("TopologyParam"),
        topology_sizes_max=_option(have, "TopologyParam", "TopoMaxSizeUnroll", 0),
    )


def enforced(words: Iterable[str]) -> tuple[str, ...]:
    """AccountingStorageEnforce with what each value implies."""
    enforced = {word.lower() for word in words}
    if "1" in enforced:
        enforced.add("associations")
    if "2" in enforced:
        enforced.add("limits")
    if "all" in enforced:
        enforced |= {"associations", "limits", "qos", "safe", "wckeys"}
    if "safe" in enforced:
        enforced.add("limits")
    if enforced & {"limits", "qos", "wckeys"}:
        enforced.add("associations")
    if "nojobs" in enforced:
        enforced.add("nosteps")
    return tuple(sorted(enforced - {"all", "1", "2"}))


def _private(words: tuple[str, ...]) -> tuple[str, ...]:
    """The kinds of records that the controller hides from other users; `cloud` is handled in `power`, `accounts` and
    `events` by slurmdbd.
    """
    kept = ("jobs", "nodes", "partitions", "reservations", "usage", "users")
    return kept if "all" in words else tuple(word for word in words if word in kept)


def _prolog_flags(words: tuple[str, ...]) -> tuple[str, ...]:
    """PrologFlags with the flags that they imply. Source: slurm.conf(5) PrologFlags."""
    implied = ("Alloc",) if {"Contain", "DeferBatch"} & set(words) else ()
    return tuple(dict.fromkeys((*implied, *words)))


def priority_policy(have: Settings) -> PriorityPolicy:
    chosen = set(have.words("PriorityFlags"))
    every = ("ASSOC", "PART", "QOS", "TRES")
    return PriorityPolicy(
        weight_assoc=have.integer("PriorityWeightAssoc"),
        weight_fairshare=have.integer("PriorityWeightFairshare"),
        weight_qos=have.integer("PriorityWeightQOS"),
        weight_tres=tuple(tres_weights(have.words("PriorityWeightTRES"))),
        favor_small=have.flag("PriorityFavorSmall"),
        accrue_always="ACCRUE_ALWAYS" in chosen,
        calculate_running="CALCULATE_RUNNING" in chosen,
        incr_only="INCR_ONLY" in chosen,
        relative_to_time="SMALL_RELATIVE_TO_TIME" in chosen,
        not_normal=tuple(word for word in every if {f"NO_NORMAL_{word}", "NO_NORMAL_ALL"} & chosen),
        calc_period_seconds=float(have.integer("PriorityCalcPeriod")),
        half_life_seconds=float(have.integer("PriorityDecayHalfLife")),
        reset_period=have.text("PriorityUsageResetPeriod"),
        classic=bool({"NO_FAIR_TREE", "DEPTH_OBLIVIOUS"} & chosen),
        depth_oblivious="DEPTH_OBLIVIOUS" in chosen,
        dampening=have.integer("FairShareDampeningFactor"),
        largest="gres" if "MAX_TRES_GRES" in chosen else "node" if "MAX_TRES" in chosen else "",
    )


def tres_weights(words: Iterable[str]) -> Iterator[tuple[str, float]]:
    """`CPU=1000`, `Mem=0.25G`: weights by TRES name. A letter is the unit: 0.25 per GiB; without one memory
    is per MiB.
    """
    for word in words:
        name, _, weight = word.rpartition("=")
        kind, slash, suffix = name.partition("/")
        kind = kind.lower()
        power = "KMGTP".find(weight[-1:].upper()) + 1
        base = 2 if power and (kind in ("mem", "vmem", "bb")) else 0
        yield kind + slash + suffix, float(weight[:-1]) / 1024.0 ** (power - base) if power else float(weight)


def preemption_policy(have: Settings) -> PreemptionPolicy:
    """PreemptType and related keys. Accepts options of PreemptParameters where older releases had them."""

    def option(name: str, old_key: str = "", old_name: str = "") -> str | None:
        value = have.option("PreemptParameters", name)
        return have.option(old_key, old_name) if value is None and old_key else value

    exempt = option("min_exempt_priority")
    grace = option("suspend_grace_time")
    reorder = option("reorder_count", "SchedulerParameters", "preempt_reorder_count")
    return PreemptionPolicy(
        type=have.text("PreemptType").partition("/")[2],
        mode=have.words("PreemptMode"),
        exempt_seconds=max(0, have.integer("PreemptExemptTime")),
        min_exempt_priority=int(exempt) if exempt else None,
        reclaim_licenses=option("reclaim_licenses") is not None,
        reorder_count=max(1, int(reorder or 1)),
        send_user_signal=option("send_user_signal", "SlurmctldParameters", "preempt_send_user_signal") is not None,
        strict_order=option("strict_order", "SchedulerParameters", "preempt_strict_order") is not None,
        youngest_first=option("youngest_first", "SchedulerParameters", "preempt_youngest_first") is not None,
        suspend_grace_seconds=int(grace) if grace else 2,
        slice_seconds=have.integer("SchedulerTimeSlice"),
    )


def _consumables(settings: Settings) -> tuple[str, bool]:
    """The unit that jobs on one node share ("core", "cpu", "socket"), and whether memory is consumable."""
    words = settings.words("SelectTypeParameters")
    if settings.text("SelectType") == "select/linear":
        return "core", settings.given("SelectTypeParameters") and "CR_Memory" in words
    shared = _shared_by(words)
    return shared if shared[0] else ("core", True)


def _shared_by(words: tuple[str, ...]) -> tuple[str, bool]:
    """The unit and memory of the CR_* words; "" if there is none."""
    for word in words:
        base = word.lower().removeprefix("cr_").removesuffix("_memory")
        if base in ("cpu", "core", "socket"):
            return base, word.lower().endswith("_memory") or "CR_Memory" in words
    return "", True


def _memory_percent(have: Settings) -> float:
    """node_reg_mem_percent; 0.0 if it is not given."""
    return float(have.option("SlurmctldParameters", "node_reg_mem_percent") or 0)


def _partition_consumables(line: PartitionLine, settings: Settings) -> tuple[str, bool]:
    """SelectTypeParameters of a partition; they apply only if the cluster shares nodes by cores or sockets."""
    by, _memory = _consumables(settings)
    if by == "cpu" or settings.text("SelectType") == "select/linear":
        return "", True
    return _shared_by(_words(line["SelectTypeParameters"]))


def _pairs(words: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Options as (name in lower case, value)."""
    pairs = []
    for word in words:
        name, _, value = word.partition("=")
        pairs.append((name.lower(), value))
    return tuple(pairs)


def _option(settings: Settings, key: str, option: str, default: int) -> int:
    text = settings.option(key, option)
    return int(text) if text else default


def _ports(text: str) -> tuple[int, int]:
    """`12000-12999`; (0, 0) for malformed text."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and len(first) < 6 and len(last) < 6):
        return 0, 0
    low, high = int(first), int(last)
    return (low, high) if 0 < low <= high <= 65_535 else (0, 0)


def _licenses(words: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    licenses = []
    for word in words:
        name, _, count = word.replace("*", ":").partition(":")
        licenses.append((name, int(count) if count.isdecimal() else 1))
    return tuple(licenses)


def exit_codes(words: tuple[str, ...]) -> tuple[int, ...]:
    """`("1-3", "18")` -> 1, 2, 3, 18."""
    codes: set[int] = set()
    for word in words:
        low, dash, high = word.partition("-")
        codes.update(range(int(low), int(high if dash else low) + 1))
    return tuple(sorted(codes))


def node_configs(parsed: Parsed, gres: GresFile) -> tuple[NodeConfig, ...]:
    """Every node, in the order of the file, DownNodes applied."""
    default_port = parsed.settings.integer("SlurmdPort")
    downs = {name: line for line in parsed.downs for name in line.names}
    entries_of: dict[str, list[int]] = {}
    everywhere = []
    for position, entry in enumerate(gres.lines):
        if not entry.nodes:
            everywhere.append(position)
        for name in entry.nodes:
            entries_of.setdefault(name, []).append(position)
    configs = []
    for line in parsed.nodes:
        specs, shape = specs_of(line), _capacity(line, parsed.settings)
        capacities: dict[tuple[int, ...], NodeCapacity] = {}
        common = _common(line)
        for name, hostname, address, port in zip(line.names, line.hostnames, line.addresses, line.ports, strict=True):
            positions = tuple(sorted([*everywhere, *entries_of.get(name, ())]))
            whole = capacities.get(positions)
            if whole is None:
                lines = [gres.lines[position] for position in positions]
                whole = capacities[positions] = replace(shape, gres=capacity(specs, lines))
            state, reason = common.initial_state, common.reason
            if name in downs:
                state, reason = downs[name].state, downs[name].reason or reason
            state = "FAIL" if state == "FAILING" else state
            if not reason and state in ("DOWN", "DRAIN", "FAIL"):
                reason = f"{state} in slurm.conf"  # else nothing would say why it gets no jobs
            configs.append(
                NodeConfig(
                    name=name,
                    address=address,
                    hostname=hostname,
                    port=port or default_port,
                    capacity=whole,
                    features=common.features,
                    weight=common.weight,
                    initial_state=state,
                    reason=reason,
                    gres_text=common.gres_text,
                    suspend_seconds=common.suspend_seconds,
                    topology=common.topology,
                    cpu_bind=common.cpu_bind,
                )
            )
    return tuple(configs)


def _common(line: NodeLine) -> NodeConfig:
    """The settings that all nodes of a line have in common."""
    state = str(line["State"])
    return NodeConfig(
        name="",
        features=_words(line["Features"]),
        weight=_number(line["Weight"]),
        initial_state=state if state in HONOURED["NodeName.State"] else "UNKNOWN",
        reason=str(line["Reason"]),
        gres_text=",".join(_words(line["Gres"])),
        suspend_seconds=_optional(line["SuspendTime"]),
        topology=str(line["Topology"] or ""),
        cpu_bind=_binding(line["CpuBind"]),
    )


def _binding(value: Value) -> str:
    """CpuBind=: cores, …; "" if it is not set."""
    return "" if value in (None, "off") else str(value)


def _default_binding(settings: Settings) -> str:
    """TaskPluginParam: `cores` applies to all tasks, `autobind=cores` to those that fit no whole parts."""
    for word in ("none", "sockets", "cores", "threads"):
        if settings.has_option("TaskPluginParam", word):
            return word
    fallback = (settings.option("TaskPluginParam", "autobind") or "").lower()
    return f"autobind={fallback}" if fallback not in ("", "none") else ""


def _capacity(line: NodeLine, have: Settings) -> NodeCapacity:
    size = geometry(line, first_cores=have.has_option("SchedulerParameters", "spec_cores_first"))
    memory = _number(line["RealMemory"]) or 1
    reserved = _number(line["MemSpecLimit"])
    return NodeCapacity(
        cpus=size.cpus,
        boards=size.boards,
        sockets=size.sockets,
        cores_per_socket=size.cores_per_socket,
        threads_per_core=size.threads_per_core,
        memory_mib=memory,
        tmp_mib=_number(line["TmpDisk"]),
        memory_reserved_mib=reserved if reserved < memory else 0,
        cpus_reserved=size.cpus_reserved,
        cores_per_gpu=_number(line["RestrictedCoresPerGPU"]),
    )


def partitions(lines: Sequence[PartitionLine], settings: Settings) -> tuple[Partition, ...]:
    """Every partition, in the order of the file; the last with Default=YES is the default."""
    default = next((line.name for line in reversed(lines) if line["Default"] is True), "")
    return tuple(_partition(line, line.name == default, settings) for line in lines)


def _partition(line: PartitionLine, default: bool, settings: Settings) -> Partition:
    alloc = str(line["AllocNodes"] or "")
    root = line["DisableRootJobs"]
    default_time, longest = line["DefaultTime"], _number(line["MaxTime"])
    has_mode = "PreemptMode" in line.values
    off = "OFF" if has_mode else ""
    consumable, memory = _partition_consumables(line, settings)
    return Partition(
        name=line.name,
        nodes=line.members,
        nodes_text=str(line["Nodes"]),
        default=default,
        state=PartitionState(str(line["State"])),
        max_time_minutes=longest,
        default_time_minutes=min(default_time, longest) if isinstance(default_time, int) else None,
        min_nodes=_number(line["MinNodes"]),
        max_nodes=_number(line["MaxNodes"]),
        max_cpus_per_node=_number(line["MaxCPUsPerNode"]),
        max_cpus_per_socket=_number(line["MaxCPUsPerSocket"]),
        default_memory_mib_per_cpu=_number(line["DefMemPerCPU"]),
        default_memory_mib_per_node=_number(line["DefMemPerNode"]),
        default_memory_mib_per_gpu=_number(line["DefMemPerGPU"]),
        default_cpus_per_gpu=_number(line["DefCpuPerGPU"]),
        max_memory_mib_per_cpu=_number(line["MaxMemPerCPU"]),
        max_memory_mib_per_node=_number(line["MaxMemPerNode"]),
        allow_accounts=_words(line["AllowAccounts"]),
        deny_accounts=_words(line["DenyAccounts"]),
        allow_groups=_words(line["AllowGroups"]),
        deny_groups=_words(line["DenyGroups"]),
        allow_qos=_words(line["AllowQos"]),
        deny_qos=_words(line["DenyQos"]),
        allow_alloc_nodes=() if alloc.upper() in ("", "ALL") else tuple(hostlist.expand(alloc)),
        alternate=str(line["Alternate"]),
        cpu_bind=_binding(line["CpuBind"]),
        oversubscribe="EXCLUSIVE" if line["Exclusive"] == "NODE" else str(line["OverSubscribe"]),
        exclusive_user=line["ExclusiveUser"] is True or line["Exclusive"] == "USER",
        exclusive_topo=line["ExclusiveTopo"] is True or line["Exclusive"] == "TOPO",
        consumable=consumable,
        memory_consumable=memory,
        priority_tier=_number(line["PriorityTier"]),
        priority_job_factor=_number(line["PriorityJobFactor"]),
        preempt_mode=",".join(_words(line["PreemptMode"]) if has_mode else settings.words("PreemptMode")) or off,
        grace_seconds=_number(line["GraceTime"]),
        qos=str(line["QOS"]),
        hidden=line["Hidden"] is True,
        root_only=line["RootOnly"] is True,
        require_reservation=line["ReqResv"] is True,
        disable_root_jobs=settings.flag("DisableRootJobs") if root is None else root is True,
        lln=line["LLN"] is True,
        over_time_minutes=_optional(line["OverTimeLimit"]),
        billing_weights=tuple(tres_weights(_words(line["TRESBillingWeights"]))),
        billing_weights_text=",".join(_words(line["TRESBillingWeights"])),
        suspend_seconds=_optional(line["SuspendTime"]),
        suspend_timeout_seconds=_optional(line["SuspendTimeout"]),
        resume_timeout_seconds=_optional(line["ResumeTimeout"]),
        power_down_on_idle=line["PowerDownOnIdle"] is True,
        topology=str(line["Topology"] or ""),
    )


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _optional(value: Value) -> int | None:
    return value if isinstance(value, int) else None


def _words(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
