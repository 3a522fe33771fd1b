"""slurm.conf keys about power saving and about special hardware, networks and federations. Source: slurm.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import OPTIONS, PROGRAM, STRING, WORDS, flags, integer, plugin, plugins, seconds
from spritz.config.schema.key import Key

_RATE = integer(0, 65533, "nodes/min")
_SUSPEND_STATES = (
    "CLOUD",
    "DOWN",
    "DRAIN",
    "DYNAMIC_FUTURE",
    "DYNAMIC_NORM",
    "FAIL",
    "INVALID_REG",
    "MAINTENANCE",
    "NOT_RESPONDING",
    "PERFCTRS",
    "PLANNED",
    "RESERVED",
)

KEYS = (
    Key("BurstBufferParameters", STRING, None, "Options of burst buffers."),
    Key(
        "BurstBufferType",
        plugin("burst_buffer", "none", "datawarp", "lua", "generic"),
        None,
        "How burst buffers are managed.",
    ),
    Key("CertgenParameters", OPTIONS, None, "Options of certificate creation."),
    Key("CertgenType", plugin("certgen", "none", "script"), None, "How certificates are created."),
    Key("CertmgrParameters", OPTIONS, None, "Options of certificate signing."),
    Key("CertmgrType", plugin("certmgr", "none", "script"), None, "How certificates are signed."),
    Key(
        "CoreSpecPlugin",
        plugin("core_spec", "none", "cray_aries"),
        "core_spec/none",
        "How specialized cores are reserved.",
    ),
    Key("CpuFreqDef", STRING, None, "Default CPU frequency or governor."),
    Key(
        "CpuFreqGovernors",
        flags("Conservative", "OnDemand", "Performance", "PowerSave", "SchedUtil", "UserSpace"),
        ("OnDemand", "Performance", "UserSpace"),
        "CPU frequency governors that jobs may request.",
    ),
    Key("ExtSensorsFreq", seconds(), 0, "Time between samples of external sensors."),
    Key("ExtSensorsType", plugin("ext_sensors", "none", "rrd"), "ext_sensors/none", "External sensors."),
    Key("FederationParameters", flags("fed_display"), (), "Options of federations."),
    Key("GpuFreqDef", STRING, "high,memory=high", "Default GPU frequency."),
    Key("MCSParameters", STRING, None, "Options of multi-category security."),
    Key(
        "MCSPlugin",
        plugin("mcs", "none", "account", "group", "label", "user"),
        "mcs/none",
        "Labels that separate jobs.",
    ),
    Key(
        "NodeFeaturesPlugins",
        plugins("node_features", "helpers", "knl_cray", "knl_generic"),
        None,
        "Plugins that change a node's features.",
    ),
    Key("PowerAction", STRING, None, "Named programs of `scontrol power`."),
    Key("PowerParameters", OPTIONS, None, "Options of power capping."),
    Key("PowerPlugin", plugin("power", "none", "cray_aries"), None, "How power is capped."),
    Key("RebootProgram", PROGRAM, None, "Program that reboots a node."),
    Key("ResumeFailProgram", PROGRAM, None, "Program run for nodes that did not resume."),
    Key("ResumeProgram", PROGRAM, None, "Program that brings nodes back from power saving."),
    Key("ResumeRate", _RATE, 300, "Maximum number of nodes resumed per minute; 0: no limit."),
    Key("ResumeTimeout", seconds(), 60, "Time limit for a node to resume."),
    Key("SlurmdHttpAuthParameters", OPTIONS, None, "How HTTP requests to slurmd are authenticated."),
    Key("SuspendExcNodes", STRING, None, "Nodes that are never suspended."),
    Key("SuspendExcParts", WORDS, None, "Partitions whose nodes are never suspended."),
    Key("SuspendExcStates", flags(*_SUSPEND_STATES), (), "States in which nodes are not suspended."),
    Key("SuspendProgram", PROGRAM, None, "Program that suspends nodes for power saving."),
    Key("SuspendRate", _RATE, 60, "Maximum number of nodes suspended per minute; 0: no limit."),
    Key(
        "SuspendTime",
        seconds(2**31, unlimited=True),
        0xFFFFFFFF,
        "Idle time after which a node is suspended.",
    ),
    Key("SuspendTimeout", seconds(), 30, "Time limit for a node to suspend."),
    Key("SwitchParameters", OPTIONS, None, "Options of the switch plugin."),
    Key(
        "SwitchType",
        plugin("switch", "none", "hpe_slingshot", "nvidia_imex", "cray_aries"),
        "switch/none",
        "Interconnect that must be set up for jobs.",
    ),
    Key("TLSParameters", OPTIONS, None, "Options of encryption."),
    Key("TLSType", plugin("tls", "none", "s2n"), "tls/none", "How messages are encrypted."),
)
