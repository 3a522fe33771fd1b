"""The node daemon's settings, from the configuration files read by `config.load`.

Sources: slurm.conf(5), gres.conf(5), cgroup.conf(5).
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator

from msgspec import Struct

from spritz.client.locate import DEFAULT_DATABASE_PORT
from spritz.config.loaded import LoadedConfig
from spritz.config.relatives import containers
from spritz.config.relatives.helpers import HelpersFile
from spritz.config.settings import Settings, substitute
from spritz.model.cluster.topology import Topology as Network
from spritz.model.errors import SpritzError
from spritz.model.node.networks import networks_of
from spritz.model.node.record import NodeConfig
from spritz.node import hosts
from spritz.node.container import SHARED_MEMORY, Container
from spritz.node.hardware.daemon_cores import Cores, divided
from spritz.node.launch.affinity import Topology
from spritz.node.launch.build import MemoryRule, NodeSetup
from spritz.node.launch.environment import NodeFacts
from spritz.node.launch.gpus import gpu_kinds, mps_each
from spritz.notation import hostlist
from spritz.runtime.privilege import UnknownUser, uid_of_setting

NO_NETWORK = Network()


class CgroupDirectories(Struct, frozen=True, kw_only=True):
    """Directories of `node.cgroup` in which this daemon creates groups; "" where it may not."""

    memory: str = ""
    devices: str = ""
    cores: str = ""
    tree: str = ""


NO_CGROUPS = CgroupDirectories()


class Hooks(Struct, frozen=True, kw_only=True):
    """Programs of the site, as patterns; limits in seconds (0: none)."""

    prolog: tuple[str, ...] = ()
    epilog: tuple[str, ...] = ()
    prolog_seconds: float = 0.0
    epilog_seconds: float = 0.0
    #: seconds for which starting a step is retried on a machine that cannot create processes (BatchStartTimeout)
    start_seconds: float = 10.0
    #: one at a time on each node (PrologFlags=Serial)
    serial: bool = False
    health_program: str = ""
    health_seconds: float = 0.0
    health_timeout_seconds: float = 60.0
    health_states: tuple[str, ...] = ()


class NodeSettings(Struct, frozen=True, kw_only=True):
    config: NodeConfig
    spool: str
    setup: NodeSetup
    #: AutoDetect of its GPUs: they are counted when the node registers
    finds_gpus: bool = False


class DaemonSettings(Struct, frozen=True, kw_only=True):
    """All settings of the daemon. `controllers`: addresses to try in order, from the key `controllers_key`."""

    path: str
    cluster_name: str
    slurm_user: str
    slurmd_user: str
    nodes: dict[str, NodeSettings]
    hooks: Hooks
    controllers: tuple[str, ...]
    controllers_key: str
    controller_port: int
    #: where slurmdbd is, if the cluster has one
    database: tuple[tuple[str, int], ...]
    log_file: str
    log_level: str
    log_time_format: str
    syslog_level: str
    pid_file: str
    #: RebootProgram with its arguments, and whether we end when it has been started (shutdown_on_reboot)
    reboot_program: str
    ends_for_reboot: bool
    #: directory of files that map GPUs to jobs (`node.metrics.job_mapping`); "": none
    job_mapping_directory: str
    #: the usage of jobs is measured for slurmctld's metrics
    measures_jobs: bool
    #: programs that change features
    helpers: HelpersFile
    #: the file system that counts as TmpDisk
    tmp_fs: str
    config_overrides: bool
    private_hosts: bool
    #: the mounted version, as of `node.cgroup.version`; "" also where CgroupPlugin=disabled
    cgroup_version: str
    #: CPUs for slurmd and its supervisors; empty: all
    own_cpus: tuple[int, ...]
    #: cgroup.conf requires memory limits by cgroups, but none can be created
    unconfined: bool
    #: the same for devices and cores: keys of cgroup.conf, and the consequences
    unheld: tuple[tuple[str, str], ...]
    #: address of every node of the cluster
    addresses: dict[str, str]


def own_nodes(config: LoadedConfig, wanted: str, hostname: str, *, some: bool = False) -> list[NodeConfig]:
    """The nodes of this daemon: those of -N, else the one whose NodeHostname or name is this host's.

    Raises SpritzError if there is none, or a name is not configured (`some`: if none of the names is).
    """
    known = {node.name: node for node in config.nodes}
    if wanted:
        try:
            names = hostlist.expand(wanted)
        except ValueError as error:
            raise SpritzError(f"-N {wanted}: {error}") from error
        missing = [name for name in names if name not in known]
        if some and len(missing) < len(names):
            names = [name for name in names if name in known]
        elif missing or not names:
            unknown = ", ".join(missing) or wanted
            raise SpritzError(f"Unable to determine this slurmd's NodeName: {config.path} has no node {unknown}")
        return [known[name] for name in dict.fromkeys(names)]
    short = hostname.partition(".")[0]
    for node in config.nodes:
        if node.name in (hostname, short) or (node.hostname or node.name) in (hostname, short, "localhost"):
            return [node]
    raise SpritzError(
        "Unable to determine this slurmd's NodeName",
        hint=f"no NodeName or NodeHostname in {config.path} is {short}; name the node with -N",
    )


class _Host(Struct, frozen=True, kw_only=True):
    """The sources of the settings of this daemon's nodes."""

    config: LoadedConfig
    nodes: list[NodeConfig]
    topology: Topology | None
    #: "" also for what cgroup.conf does not confine
    groups: CgroupDirectories
    #: the name of this daemon's own files in directories that others use too
    name: str
    hostname: str
    cores: Cores
    network: Network

    @property
    def private_hosts(self) -> bool:
        return self.config.settings.has_option("SlurmdParameters", "private_hosts")


def daemon_settings(
    config: LoadedConfig,
    nodes: list[NodeConfig],
    topology: Topology | None,
    groups: CgroupDirectories = NO_CGROUPS,
    name: str = "",
    cgroup_version: str = "",
) -> DaemonSettings:
    """Everything for these nodes. `name` is of what this daemon alone has in directories that others use too.

    Raises SpritzError.
    """
    have = config.settings
    host = _host(config, nodes, topology, groups, name)

    def path(key: str) -> str:
        return _path(config, key, nodes[0].name)

    return DaemonSettings(
        path=config.path,
        cluster_name=config.cluster.cluster_name,
        slurm_user=config.cluster.slurm_user,
        slurmd_user=have.text("SlurmdUser"),
        nodes={node.name: _node_settings(host, node) for node in nodes},
        hooks=_hooks(have),
        controllers=have.controller_addresses,
        controllers_key=have.controller_key,
        controller_port=int(str(have["SlurmctldPort"]).partition("-")[0]),
        database=_database(have),
        log_file=path("SlurmdLogFile"),
        log_level=have.text("SlurmdDebug"),
        log_time_format=have.text("LogTimeFormat"),
        syslog_level=have.text("SlurmdSyslogDebug") or "quiet",
        tmp_fs=path("TmpFS"),
        pid_file=path("SlurmdPidFile"),
        reboot_program=""
        if have.has_option("SlurmctldParameters", "reboot_from_controller")
        else path("RebootProgram"),
        helpers=config.helpers,
        ends_for_reboot=have.has_option("SlurmdParameters", "shutdown_on_reboot"),
        measures_jobs=have.text("MetricsType") == "metrics/openmetrics",
        job_mapping_directory=have.option("SlurmdParameters", "dcgm_job_mapping_dir") or "",
        config_overrides=have.has_option("SlurmdParameters", "config_overrides"),
        private_hosts=host.private_hosts,
        cgroup_version=cgroup_version,
        own_cpus=host.cores.daemons,
        unconfined=config.cgroup_given and _confines_memory(config) and not groups.memory,
        unheld=tuple(_unheld(config, nodes, host.groups.devices, host.groups.cores)),
        addresses={node.name: node.address or node.hostname or node.name for node in (*config.nodes, *nodes)},
    )


def spool_of(config: LoadedConfig, node: str, *, several: bool) -> str:
    """SlurmdSpoolDir of a node; `several`: this daemon has other nodes too."""
    spool = _path(config, "SlurmdSpoolDir", node)
    return f"{spool}/{node}" if several and "%n" not in config.settings.text("SlurmdSpoolDir") else spool


def _path(config: LoadedConfig, key: str, node: str) -> str:
    return substitute(
        config.settings.text(key),
        nodename=node,
        hostname=_short_hostname(),
        clustername=config.cluster.cluster_name,
    )


def _short_hostname() -> str:
    return socket.gethostname().partition(".")[0]


def _confines_memory(config: LoadedConfig) -> bool:
    """Memory is confined without a cgroup.conf, where it can be."""
    return config.cgroup.flag("ConstrainRAMSpace") or not config.cgroup_given


def _host(
    config: LoadedConfig, nodes: list[NodeConfig], topology: Topology | None, groups: CgroupDirectories, name: str
) -> _Host:
    have = config.settings
    if len(nodes) == 1:
        off_spec = have.has_option("TaskPluginParam", "SlurmdOffSpec")
        capacity = nodes[0].capacity
        cores = divided(capacity.cpus_reserved, capacity.cpus, topology, off_spec=off_spec)
    else:
        # Nodes that share a machine have no cores of it.
        cores = Cores()
    places = {node.name: node.topology for node in nodes if node.topology}
    return _Host(
        config=config,
        nodes=nodes,
        topology=topology,
        groups=CgroupDirectories(
            memory=groups.memory if _confines_memory(config) else "",
            devices=groups.devices if holds(config, "ConstrainDevices") else "",
            cores=groups.cores if holds(config, "ConstrainCores") else "",
            tree=groups.tree,
        ),
        name=name,
        hostname=_short_hostname(),
        cores=cores,
        network=next(iter(networks_of(config.cluster.topologies, places)), NO_NETWORK),
    )


def _node_settings(host: _Host, node: NodeConfig) -> NodeSettings:
    spool = spool_of(host.config, node.name, several=len(host.nodes) > 1)
    return NodeSettings(
        config=node,
        spool=spool,
        finds_gpus=host.config.gres.autodetect_of(node.name) in ("nvml", "nvidia"),
        setup=_node_setup(host, node, spool),
    )


def _node_setup(host: _Host, node: NodeConfig, spool: str) -> NodeSetup:
    config, have, groups = host.config, host.config.settings, host.groups
    plugins = str(have["TaskPlugin"])
    return NodeSetup(
        facts=_node_facts(host, node),
        topology=host.topology,
        cpus=node.capacity.cpus,
        bind="affinity" in plugins or holds(config, "ConstrainCores"),
        job_cpus=host.cores.jobs,
        file_append=config.cluster.job_file_append,
        kill_wait_seconds=config.cluster.kill_wait_seconds,
        unkillable_seconds=have.integer("UnkillableStepTimeout"),
        unkillable_program=have.text("UnkillableStepProgram"),
        task_prolog=have.text("TaskProlog"),
        task_epilog=have.text("TaskEpilog"),
        cgroup_memory=groups.memory,
        cgroup_devices=groups.devices,
        cgroup_cores=groups.cores,
        cgroup_tree=groups.tree,
        container=_container(host, node.name, spool),
        oci=config.oci,
        spool=spool,
        gres=node.capacity.gres,
        memory_rule=_memory_rule(config, node),
        sample_seconds=_sample_seconds(have.words("JobAcctGatherFrequency")),
        memory_counted=_memory_counted(have.words("JobAcctGatherParams")),
        energy_source=_energy_source(have.text("AcctGatherEnergyType")),
        gpu_accounting="DisableGPUAcct" not in have.words("JobAcctGatherParams"),
        hosts_file=f"{spool}/{hosts.FILE}" if host.private_hosts else "",
        tree_width=have.integer("TreeWidth"),
        slurm_uid=_slurm_uid(config.cluster.slurm_user),
        host="" if host.private_hosts else host.hostname,
        propagate_priority=have.integer("PropagatePrioProcess"),
        limits=_limits(have.words("PropagateResourceLimits"), have.words("PropagateResourceLimitsExcept")),
    )


def _slurm_uid(name: str) -> int:
    """0 for an unknown user, which slurmd refuses when it starts."""
    try:
        return uid_of_setting(name)
    except UnknownUser:
        return 0


def _node_facts(host: _Host, node: NodeConfig) -> NodeFacts:
    address, pattern = host.network.address(node.name)
    gpus = (line for line in node.capacity.gres if line.name == "gpu")
    return NodeFacts(
        name=node.name,
        cluster_name=host.config.cluster.cluster_name,
        slurm_conf=host.config.path,
        gpu_kinds=gpu_kinds(node.capacity.gres),
        mps_each=mps_each(node.capacity.gres),
        # GPUs without a File= stay in sight.
        local_gpus=bool(host.groups.devices) and all(line.files for line in gpus),
        address=address,
        address_pattern=pattern,
    )


def _hooks(have: Settings) -> Hooks:
    both_seconds = float(have.integer("PrologEpilogTimeout"))
    return Hooks(
        prolog=_programs(have["Prolog"]),
        epilog=_programs(have["Epilog"]),
        prolog_seconds=float(have.integer("PrologTimeout")) or both_seconds,
        epilog_seconds=float(have.integer("EpilogTimeout")) or both_seconds,
        start_seconds=float(have.integer("BatchStartTimeout")),
        serial=have.has_option("PrologFlags", "Serial"),
        health_program=have.text("HealthCheckProgram"),
        health_seconds=float(have.integer("HealthCheckInterval")),
        health_timeout_seconds=float(have.integer("HealthCheckTimeout") or 60),
        health_states=_programs(have["HealthCheckNodeState"]),
    )


def _database(have: Settings) -> tuple[tuple[str, int], ...]:
    """Where slurmdbd is, and its backup; none without."""
    if have.text("AccountingStorageType") != "accounting_storage/slurmdbd":
        return ()
    port = have.integer("AccountingStoragePort") or DEFAULT_DATABASE_PORT
    hosts = have.text("AccountingStorageHost"), have.text("AccountingStorageBackupHost")
    return tuple((host, port) for host in hosts if host)


def holds(config: LoadedConfig, key: str) -> bool:
    """Whether a cgroup must restrict tasks to their devices or cores. Source: slurm.conf(5) TaskPlugin=task/cgroup."""
    return config.cgroup.flag(key) and "cgroup" in str(config.settings["TaskPlugin"])


def controllers_taken(config: LoadedConfig) -> tuple[str, ...]:
    """Controllers of cgroups that cgroup.conf asks for (devices take none in version 2)."""
    memory = ("memory",) if config.cgroup.flag("ConstrainRAMSpace") else ()
    return (*memory, *(("cpuset",) if holds(config, "ConstrainCores") else ()))


def _unheld(config: LoadedConfig, nodes: list[NodeConfig], devices: str, cores: str) -> Iterator[tuple[str, str]]:
    if config.cgroup.flag("ConstrainDevices") and not devices:
        takes = "it takes TaskPlugin=task/cgroup, and a devices hierarchy (cgroup v1) or eBPF (v2)"
        yield "ConstrainDevices", f"devices are not confined: {takes}"
    open_to_all = [node.name for node in nodes if any(g.name == "gpu" and not g.files for g in node.capacity.gres)]
    if devices and open_to_all:
        listed = hostlist.compress(open_to_all)
        yield "ConstrainDevices", f"gres.conf has no File= for GPUs of {listed}: these are open to every job"
    if config.cgroup.flag("ConstrainCores") and not cores:
        takes = "it takes TaskPlugin=task/cgroup and a cpuset hierarchy to write to"
        yield "ConstrainCores", f"tasks may leave their cores: {takes}"


def _container(host: _Host, node: str, spool: str) -> Container | None:
    """The settings of job_container.conf for the node. Raises SpritzError if they would cover a directory that slurmd
    needs.
    """
    container = host.config.containers.of(node)
    if not container:
        return None
    base = substitute(str(container["BasePath"]), nodename=node, hostname=host.hostname)
    dirs = container["Dirs"]
    assert isinstance(dirs, tuple)
    places = tuple(dict.fromkeys(str(place).rstrip("/") for place in dirs))
    for key, path in (("BasePath", base), ("SlurmdSpoolDir", spool)):
        for place in (*places, SHARED_MEMORY):
            if f"{path}/".startswith(f"{place}/"):
                raise SpritzError(
                    f"{containers.FILE}: {key}={path} lies in {place}, which every job is to have of its own",
                    hint=f"set {key} to a directory outside of it",
                )
    return Container(
        base=f"{base}/{node}" if len(host.nodes) > 1 else base,
        auto_base=bool(container["AutoBasePath"]),
        dirs=places,
        init_script=str(container["InitScript"] or ""),
        shared=bool(container["Shared"]),
        mark=f"{host.name}_{node}",
    )


def _memory_rule(config: LoadedConfig, node: NodeConfig) -> MemoryRule:
    cgroup = config.cgroup
    if not config.cgroup_given:
        return MemoryRule()
    return MemoryRule(
        held=_confines_memory(config) or "OverMemoryKill" in config.settings.words("JobAcctGatherParams"),
        percent=cgroup.number("AllowedRAMSpace"),
        min_mib=int(cgroup.number("MinRAMSpace")),
        max_mib=int(node.capacity.memory_mib * cgroup.number("MaxRAMPercent") / 100),
        swap_percent=cgroup.number("AllowedSwapSpace") if cgroup.flag("ConstrainSwapSpace") else None,
    )


def _energy_source(kind: str) -> str:
    source = kind.removeprefix("acct_gather_energy/")
    return source if source in ("rapl", "gpu") else ""


def _sample_seconds(words: tuple[str, ...]) -> float:
    """`30` or `task=30,energy=60`: seconds between samples of tasks; 0: none."""
    for word in words:
        name, equals, value = word.partition("=")
        if (name.lower() == "task" and value.isdecimal()) or (not equals and name.isdecimal()):
            return float(value or name)
    return 30.0


def _memory_counted(words: tuple[str, ...]) -> str:
    """The memory that counts as used. Source: slurm.conf(5) JobAcctGatherParams."""
    return "pss" if "UsePss" in words else "private" if "NoShared" in words else "rss"


def _programs(value: object) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return tuple(str(word) for word in value)
    return tuple(str(value).split(",")) if value else ()


def _limits(taken: tuple[str, ...], excepted: tuple[str, ...]) -> frozenset[str] | None:
    """Which limits are propagated; None: all."""
    names = frozenset(name.removeprefix("RLIMIT_") for name in vars(resource) if name.startswith("RLIMIT_"))
    wanted = {word.upper().removeprefix("RLIMIT_") for word in taken}
    if excepted:
        return names - {word.upper().removeprefix("RLIMIT_") for word in excepted}
    if not wanted or "ALL" in wanted:
        return None
    return frozenset() if "NONE" in wanted else names & wanted
