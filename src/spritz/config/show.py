"""The output of `scontrol show config`: keys in Slurm's order and spelling, values in Slurm's forms.

Pure. What only the running controller knows (its start, the next job id, uids) comes in as `live`.

Source: order and forms recorded from 22.05; keys of later releases are where 25.05 has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.config.schema import cgroup_keys, slurm_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spritz.config.loaded import LoadedConfig
    from spritz.config.settings import Settings

NULL = "(null)"

#: Keys in the order of the command. Those in capitals are `live`; `SlurmctldHost` becomes one line per host.
ORDER = tuple(
    """
AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageHost AccountingStorageExternalHost
AccountingStorageParameters AccountingStoragePort AccountingStorageTRES AccountingStorageType AccountingStorageUser
AccountingStoreFlags AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInterconnectType AcctGatherNodeFreq
AcctGatherProfileType AllowSpecResourcesUsage AuthAltTypes AuthAltParameters AuthInfo AuthType BatchStartTimeout
BcastExclude BcastParameters BOOT_TIME BurstBufferType CertmgrParameters CertmgrType CliFilterPlugins ClusterName
CommunicationParameters CompleteWait CoreSpecPlugin CpuFreqDef CpuFreqGovernors CredType DataParserParameters DebugFlags
DefMemPerNode DependencyParameters DisableRootJobs EioTimeout EnforcePartLimits Epilog EpilogMsgTime EpilogSlurmctld
EpilogTimeout ExtSensorsType ExtSensorsFreq FairShareDampeningFactor FederationParameters FirstJobId GetEnvTimeout
GresTypes GpuFreqDef GroupUpdateForce GroupUpdateTime HASH_VAL HashPlugin HealthCheckInterval HealthCheckNodeState
HealthCheckProgram InactiveLimit InteractiveStepOptions JobAcctGatherFrequency JobAcctGatherType JobAcctGatherParams
JobCompHost JobCompLoc JobCompParams JobCompPort JobCompType JobCompUser JobContainerType JobCredentialPrivateKey
JobCredentialPublicCertificate JobDefaults JobFileAppend JobRequeue JobSubmitPlugins KillOnBadExit KillWait
LaunchParameters LaunchType Licenses LogTimeFormat MailDomain MailProg MaxArraySize MaxBatchRequeue MaxDBDMsgs
MaxJobCount MaxJobId MaxMemPerNode MaxNodeCount MaxStepCount MaxTasksPerNode MCSPlugin MCSParameters MessageTimeout
MetricsType MinJobAge MpiDefault MpiParams MULTIPLE_SLURMD NEXT_JOB_ID NodeFeaturesPlugins OverTimeLimit PluginDir
PlugStackConfig PowerParameters PowerPlugin PreemptMode PreemptParameters PreemptType PreemptExemptTime PrEpParameters
PrEpPlugins PriorityParameters PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityDecayHalfLife
PriorityCalcPeriod PriorityFavorSmall PriorityFlags PriorityMaxAge PriorityUsageResetPeriod PriorityType
PriorityWeightAge PriorityWeightAssoc PriorityWeightFairShare PriorityWeightJobSize PriorityWeightPartition
PriorityWeightQOS PriorityWeightTRES PrivateData ProctrackType Prolog PrologEpilogTimeout PrologSlurmctld PrologFlags
PrologTimeout PropagatePrioProcess PropagateResourceLimits PropagateResourceLimitsExcept RebootProgram ReconfigFlags
RequeueExit RequeueExitHold ResumeFailProgram ResumeProgram ResumeRate ResumeTimeout ResvEpilog ResvOverRun ResvProlog
ReturnToService RoutePlugin SchedulerParameters SchedulerTimeSlice SchedulerType ScronParameters SelectType
SelectTypeParameters SlurmUser SlurmctldAddr SlurmctldDebug SlurmctldHost SlurmctldLogFile SlurmctldPort
SlurmctldSyslogDebug SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldTimeout SlurmctldParameters SlurmdDebug
SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort SlurmdSpoolDir SlurmdSyslogDebug SlurmdTimeout SlurmdUser
SlurmSchedLogFile SlurmSchedLogLevel SlurmctldPidFile SlurmctldPlugstack SLURM_CONF SLURM_VERSION SrunEpilog
SrunPortRange SrunProlog StateSaveLocation SuspendExcNodes SuspendExcParts SuspendExcStates SuspendProgram SuspendRate
SuspendTime SuspendTimeout SwitchParameters SwitchType TaskEpilog TaskPlugin TaskPluginParam TaskProlog TCPTimeout
TLSType TmpFS TopologyParam TopologyPlugin TrackWCKey TreeWidth UsePam UnkillableStepProgram UnkillableStepTimeout
VSizeFactor WaitTime X11Parameters
""".split()  # noqa: SIM905  (a list of two hundred literals would hide the order)
)

#: shown only with PriorityType=priority/multifactor
_MULTIFACTOR = frozenset(
    name for name in ORDER if name.startswith(("PriorityWeight", "PriorityDecay", "PriorityCalc", "PriorityFavor"))
) | {"PriorityFlags", "PriorityMaxAge", "PriorityUsageResetPeriod", "FairShareDampeningFactor"}

#: keys that Slurm still prints and no longer reads
_ALWAYS_NULL = frozenset({"JobCredentialPrivateKey", "JobCredentialPublicCertificate"})


def show_config(config: LoadedConfig, live: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """(key, text) in the order of the command.

    `live` gives BOOT_TIME, NEXT_JOB_ID, HASH_VAL, SLURM_CONF, SLURM_VERSION, MULTIPLE_SLURMD, and takes precedence for
    any key (such as SlurmUser, which Slurm shows as `root(0)`). A capital key that `live` lacks is left out.
    """
    live = live or {}
    settings = config.settings
    multifactor = settings.text("PriorityType") == "priority/multifactor"
    pairs: list[tuple[str, str]] = []
    for name in ORDER:
        if name in live:
            pairs.append((name, live[name]))
        elif name == "SlurmctldHost":
            pairs += _hosts(settings)
        elif name in _MULTIFACTOR and not multifactor:
            continue
        elif name in _SPECIAL:
            pairs.append(_SPECIAL[name](config))
        elif name in _ALWAYS_NULL:
            pairs.append((name, NULL))
        elif name.lower() in slurm_keys():
            pairs.append((name, _value(settings, name)))
    plugins = (str(settings[name]) for name in ("ProctrackType", "TaskPlugin", "JobAcctGatherType"))
    if any("cgroup" in names for names in plugins):
        pairs += [("", ""), ("", "Cgroup Support Configuration:"), *_show_cgroup(config)]
    return pairs


def _value(settings: Settings, name: str) -> str:
    key = slurm_keys()[name.lower()]
    value = settings[key.name]
    if value is None:
        return NULL
    return key.kind.show(value) or NULL


def _hosts(settings: Settings) -> list[tuple[str, str]]:
    return [
        (f"SlurmctldHost[{index}]", host.name if host.address == host.name else f"{host.name}({host.address})")
        for index, host in enumerate(settings.hosts)
    ]


def _memory(kind: str) -> Callable[[LoadedConfig], tuple[str, str]]:
    """DefMemPerNode or MaxMemPerNode: Slurm shows the one of the pair that is set, under its own name."""

    def show(config: LoadedConfig) -> tuple[str, str]:
        for unit in ("Node", "CPU"):
            if amount := config.settings.integer(f"{kind}{unit}"):
                return f"{kind}{unit}", str(amount)
        return f"{kind}Node", "UNLIMITED"

    return show


def _job_defaults(config: LoadedConfig) -> tuple[str, str]:
    defaults = [(name, config.settings.integer(name)) for name in ("DefCpuPerGPU", "DefMemPerGPU")]
    return "JobDefaults", ",".join(f"{name}={amount}" for name, amount in defaults if amount) or NULL


def _or(name: str, absent: str) -> Callable[[LoadedConfig], tuple[str, str]]:
    """A key with a text other than `(null)` when it is not set."""

    def show(config: LoadedConfig) -> tuple[str, str]:
        text = _value(config.settings, name)
        return name, absent if text == NULL else text

    return show


def _tres(config: LoadedConfig) -> tuple[str, str]:
    """The TRES of the cluster; those that every cluster has come first."""
    named = (word.lower() for word in config.settings.words("AccountingStorageTRES"))
    return "AccountingStorageTRES", ",".join(dict.fromkeys((*_TRES, *named)))


def _node_count(config: LoadedConfig) -> tuple[str, str]:
    return "MaxNodeCount", str(max(len(config.nodes), config.settings.integer("MaxNodeCount")))


def _suspend_time(config: LoadedConfig) -> tuple[str, str]:
    text = _value(config.settings, "SuspendTime")
    return "SuspendTime", "INFINITE" if text == "UNLIMITED" else text


def _timeout(name: str) -> Callable[[LoadedConfig], tuple[str, str]]:
    """A time in bare seconds; 65534 is Slurm's "not set"."""

    def show(config: LoadedConfig) -> tuple[str, str]:
        return name, str(config.settings.integer(name)) if config.settings[name] is not None else "65534"

    return show


_TRES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")

_SPECIAL: dict[str, Callable[[LoadedConfig], tuple[str, str]]] = {
    "AccountingStorageEnforce": lambda config: (
        "AccountingStorageEnforce",
        ",".join(config.cluster.enforce) or "none",
    ),
    "AccountingStorageTRES": _tres,
    "CpuFreqDef": _or("CpuFreqDef", "Unknown"),
    "DefMemPerNode": _memory("DefMemPer"),
    "EpilogTimeout": _timeout("EpilogTimeout"),
    "JobDefaults": _job_defaults,
    "MaxMemPerNode": _memory("MaxMemPer"),
    "MaxNodeCount": _node_count,
    "PowerPlugin": _or("PowerPlugin", ""),
    "PriorityFlags": _or("PriorityFlags", ""),
    "PrologEpilogTimeout": _timeout("PrologEpilogTimeout"),
    "PrologFlags": lambda config: ("PrologFlags", ",".join(config.cluster.prolog_flags) or NULL),
    "PrologTimeout": _timeout("PrologTimeout"),
    "SrunPortRange": _or("SrunPortRange", "0-0"),
    "SuspendTime": _suspend_time,
    "TaskPluginParam": _or("TaskPluginParam", "(null type)"),
    "TrackWCKey": lambda config: ("TrackWCKey", "Yes" if config.cluster.track_wckey else "No"),
}


def _show_cgroup(config: LoadedConfig) -> list[tuple[str, str]]:
    """(key, text) of that section, by name."""
    pairs = []
    for key in cgroup_keys().values():
        value = config.cgroup[key.name]
        text = NULL if value is None else key.kind.show(value)
        pairs.append((key.name, text.lower() if isinstance(value, bool) else text))
    return sorted(set(pairs))
