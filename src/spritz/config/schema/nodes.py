"""Keys of NodeName, DownNodes and NodeSet lines. Source: slurm.conf(5) NODE CONFIGURATION, DOWN NODE …, NODESET ….

Names that may hold a hostlist are kept as text here; `typed` expands them.
"""

from __future__ import annotations

from spritz.config.kinds import MIB, PORT_MAX, SMALL_MAX, STRING, TRES_WEIGHTS, WORDS, Kind, Value, choice, integer
from spritz.config.schema.key import Key
from spritz.notation import hostlist, ranges

_PARTS = integer(1, SMALL_MAX)
CPU_BIND = choice(
    "none",
    "sockets",
    "ldoms",
    "cores",
    "threads",
    "off",
    aliases={"socket": "sockets", "ldom": "ldoms", "core": "cores", "thread": "threads"},
)


def _node_ports(text: str) -> tuple[str, ...]:
    """Parse `7001`, `[7001-7004]` or `7001-7004` into all ports, in order."""
    ports = hostlist.expand(text if "[" in text else f"[{text}]")
    if not ports or not all(port.isdecimal() and 1 <= int(port) <= PORT_MAX for port in ports):
        raise ValueError
    return tuple(ports)


def _node_ports_text(value: Value) -> str:
    ports = value if isinstance(value, tuple) else ()
    return ports[0] if len(ports) == 1 else f"[{ranges.format_ids(int(port) for port in ports)}]"


_NODE_PORTS = Kind(
    name="ports",
    accepted="a port from 1 to 65535, or one for each node such as [17001-17008]",
    parse=_node_ports,
    show=_node_ports_text,
    write=_node_ports_text,
)

#: States allowed in the file. Other states follow from the node's reports.
NODE_STATES = ("UNKNOWN", "CLOUD", "DOWN", "DRAIN", "EXTERNAL", "FAIL", "FAILING", "FUTURE")

NODE_KEYS = (
    Key("NodeName", STRING, None, "Names of the nodes; DEFAULT sets values for the lines below."),
    Key("BcastAddr", STRING, None, "Other addresses for sbcast."),
    Key("Boards", _PARTS, None, "Boards of a node."),
    Key(
        "CoreSpecCount",
        integer(0, SMALL_MAX),
        0,
        "Cores kept for the system, where slurmd and its supervisors run (TaskPluginParam=SlurmdOffSpec: elsewhere).",
    ),
    Key("CoresPerSocket", _PARTS, None, "Cores of each socket."),
    Key("CpuBind", CPU_BIND, None, "Default binding of tasks on these nodes."),
    Key("CPUs", _PARTS, None, "Processors for jobs: sockets, cores or threads.", ("Procs",)),
    Key("CPUSpecList", STRING, None, "CPUs kept for the system, such as 0-1,8."),
    Key("Features", WORDS, (), "Words that jobs request with --constraint.", ("Feature",)),
    Key("Gres", WORDS, (), "Generic resources, `name[:type][:no_consume]:count`."),
    Key("GresConf", STRING, None, "Lines of gres.conf for a dynamic node."),
    Key("MemSpecLimit", MIB, 0, "Memory reserved for the system, MiB. Daemons are not limited to it."),
    Key("NodeAddr", STRING, None, "Addresses, one for each node."),
    Key("NodeHostname", STRING, None, "Host names, one for each node."),
    Key("Parameters", WORDS, (), "Options of these nodes."),
    Key("Port", _NODE_PORTS, None, "Port of slurmd, or a range with a port for each node."),
    Key("RealMemory", integer(1, 2**62, name="MiB"), None, "Memory of a node, MiB."),
    Key("Reason", STRING, "", "Why the node is in its state."),
    Key("RestrictedCoresPerGPU", integer(0, SMALL_MAX), 0, "Cores reserved for jobs with GPUs."),
    Key("Sockets", _PARTS, None, "Sockets of a node."),
    Key("SocketsPerBoard", _PARTS, None, "Sockets of each board."),
    Key(
        "State",
        choice(*NODE_STATES, aliases={"idle": "UNKNOWN", "allocated": "UNKNOWN"}),
        "UNKNOWN",
        "State at the first start.",
    ),
    Key("SuspendTime", integer(0, 2**31, "sec", unlimited=True), None, "Idle time before power saving."),
    Key("ThreadsPerCore", _PARTS, None, "Threads of each core."),
    Key("TmpDisk", integer(0, 2**32, name="MiB"), 0, "Size of TmpFS, MiB."),
    Key("Topology", STRING, None, "Position of a dynamic node in the topology."),
    Key("TRESWeights", TRES_WEIGHTS, None, "Weights of resources when nodes are compared."),
    Key("Weight", integer(0, 2**32 - 2), 1, "Nodes with a lower weight are used first."),
)

DOWN_KEYS = (
    Key("DownNodes", STRING, None, "Nodes that are out of service."),
    Key("Reason", STRING, "", "Why the nodes are out of service."),
    Key("State", choice("DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE"), "DOWN", "State of the nodes."),
)

NODESET_KEYS = (
    Key("NodeSet", STRING, None, "Name of the set."),
    Key("Feature", STRING, None, "Feature whose nodes belong to the set."),
    Key("Nodes", STRING, None, "Nodes of the set."),
)
