"""The catalogue of sinfo's fields: the text for a group of equal nodes, and the values that separate groups.

Source: sinfo(1) `-o` and `-O`; texts as 22.05 prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.notation.duration import format_elapsed
from spritz.notation.hostlist import compress_sorted, sort
from spritz.presentation.columns import Field, by_letter, by_name
from spritz.presentation.node import node_states
from spritz.presentation.node.node_text import gres_text, gres_used_text
from spritz.presentation.users import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypedDict, Unpack

    from spritz.model.node.partition import Partition
    from spritz.model.queries.nodes import NodeView
    from spritz.presentation.node.node_groups import Group

    class Called(TypedDict, total=False):
        """Names of a field for users: see `columns.Field`."""

        letter: str
        name: str
        aliases: tuple[str, ...]


NA = "n/a"
NONE = "none"


class NodeField(Field):
    """A field of a group.

    `key`: must be equal for nodes to share a line (None: the line counts or lists them); `exact`: only with `--exact`;
    otherwise the least value is shown with a `+`. `partition`: the field is about partitions, so they get separate
    lines.
    """

    __slots__ = ("exact", "key", "partition")

    def __init__(
        self,
        header: str,
        render: Callable[[Group], str] | None = None,
        *,
        key: Callable[[Partition, NodeView], object] | None = None,
        exact: bool = False,
        partition: bool = False,
        refused: str = "",
        sort: Callable[[Group], object] | None = None,
        **called: Unpack[Called],
    ) -> None:
        super().__init__(
            header,
            ("group",),
            None if render is None else (lambda now, group: render(group)),
            refused=refused,
            sort=sort,
            **called,
        )
        self.key = key
        self.exact = exact
        self.partition = partition


def _of_partition(
    header: str,
    text: Callable[[Partition], str],
    sort: Callable[[Partition], object] | None = None,
    **called: Unpack[Called],
) -> NodeField:
    return NodeField(
        header,
        lambda group: text(group.partition),
        key=lambda partition, view: text(partition),
        partition=True,
        sort=None if sort is None else (lambda group: sort(group.partition)),
        **called,
    )


def _of_node(
    header: str, text: Callable[[NodeView], str], none: str = NA, *, exact: bool = False, **called: Unpack[Called]
) -> NodeField:
    """A field that is equal for all nodes of a line."""
    return NodeField(
        header,
        lambda group: text(group.views[0]) if group.views else none,
        key=lambda partition, view: text(view),
        exact=exact,
        sort=lambda group: text(group.views[0]) if group.views else "",
        **called,
    )


def _least(header: str, value: Callable[[NodeView], int], **called: Unpack[Called]) -> NodeField:
    """A field that shows the least value, with `+` if some nodes have more."""

    def render(group: Group) -> str:
        values = [value(view) for view in group.views] or [0]
        return f"{min(values)}+" if max(values) > min(values) else str(values[0])

    return NodeField(
        header,
        render,
        key=lambda partition, view: value(view),
        exact=True,
        sort=lambda group: min((value(view) for view in group.views), default=0),
        **called,
    )


def _listed(
    header: str, text: Callable[[NodeView], str], *, apart: bool = False, **called: Unpack[Called]
) -> NodeField:
    """A field that lists all different values. `apart`: nodes with different values get separate lines."""

    def render(group: Group) -> str:
        words = list(dict.fromkeys(text(view) for view in group.views))

        return compress_sorted(words)

    def order(group: Group) -> object:
        names = sort(text(view) for view in group.views)
        return natural(names[0]) if names else ()

    return NodeField(header, render, key=(lambda partition, view: text(view)) if apart else None, sort=order, **called)


def natural(name: str) -> tuple[object, ...]:
    """Sort key that puts node2 before node10: words and numbers alternate."""
    parts: list[object] = []
    digits = word = ""
    for character in name:
        if character.isdecimal():
            digits += character
        else:
            if digits:
                parts += [word, int(digits)]
                digits = word = ""
            word += character
    parts += [word, int(digits)] if digits else [word, -1]
    return tuple(parts)


def _spread(
    header: str, value: Callable[[NodeView], float | None], text: Callable[[float], str], **called: Unpack[Called]
) -> NodeField:
    """A field that shows `least-most`."""

    def render(group: Group) -> str:
        values = [v for v in (value(view) for view in group.views) if v is not None]
        if not values:
            return "N/A"
        low, high = text(min(values)), text(max(values))
        return low if low == high else f"{low}-{high}"

    return NodeField(
        header, render, sort=lambda group: min((value(view) or 0 for view in group.views), default=0), **called
    )


# Partitions


def partition_name(partition: Partition) -> str:
    """The name, with the star of the default partition."""
    return partition.name + ("*" if partition.default else "")


def _limit(minutes: int | None) -> str:
    if minutes is None:
        return NA
    return "infinite" if minutes >= INFINITE else format_elapsed(minutes * 60)


def _time(minutes: int | None) -> str:
    """A time limit with days separate and hours always shown: `7-00:00:00`, `1:00:00`."""
    return _limit(minutes)


def _job_size(partition: Partition) -> str:
    low = max(partition.min_nodes, 1)
    if partition.max_nodes >= INFINITE:
        return f"{low}-infinite"
    return str(low) if low == partition.max_nodes else f"{low}-{partition.max_nodes}"


def _unlimited(count: int) -> str:
    return "UNLIMITED" if count >= INFINITE else str(count)


def _all(names: Iterable[str]) -> str:
    return ",".join(names) or "all"


# Nodes


def cpus(view: NodeView) -> int:
    return view.node.config.capacity.cpus


def is_out(view: NodeView) -> bool:
    """Whether the node is down, drained, failing or unknown: its idle CPUs count as `other`."""
    return view.state_names[0] in ("DOWN", "UNKNOWN", "ERROR", "FUTURE") or bool(
        {"DRAIN", "FAIL"} & set(view.state_names[1:])
    )


def cpu_counts(group: Group) -> tuple[int, int, int, int]:
    """Allocated, idle, other and total CPUs of the group."""
    allocated = idle = other = 0
    for view in group.views:
        used = min(view.cpus_allocated, cpus(view))
        allocated += used
        if is_out(view):
            other += cpus(view) - used
        else:
            idle += cpus(view) - used
    return allocated, idle, other, allocated + idle + other


def node_counts(group: Group) -> tuple[int, int, int, int]:
    """Allocated, idle, other and total nodes of the group."""
    allocated = idle = other = 0
    for view in group.views:
        if view.state_names[0] in ("ALLOCATED", "MIXED") or "COMPLETING" in view.state_names:
            allocated += 1
        elif is_out(view):
            other += 1
        else:
            idle += 1
    return allocated, idle, other, len(group.views)


def _slashed(counts: Iterable[int]) -> str:
    return "/".join(map(str, counts))


def _features(view: NodeView) -> str:
    return ",".join(view.node.available) or "(null)"


def _active(view: NodeView) -> str:
    return ",".join(view.node.active) or "(null)"


def _gres(view: NodeView) -> str:
    return gres_text(view) or "(null)"


def _gres_used(view: NodeView) -> str:
    return gres_used_text(view, indexes=True) or "(null)"


def _reason(view: NodeView) -> str:
    return view.node.reason or NONE


def _user(view: NodeView) -> str:
    if not view.node.reason:
        return "Unknown"

    return name_of(view.node.reason_uid)


def _user_long(view: NodeView) -> str:
    return f"{_user(view)}({view.node.reason_uid})" if view.node.reason else "Unknown"


def _timestamp(view: NodeView) -> str:
    if not view.node.reason_at or not view.node.reason:
        return "Unknown"
    from spritz.presentation.local_time import clock_text

    return clock_text(view.node.reason_at)


def _resumes(view: NodeView) -> str:
    if not view.node.resume_at:
        return "None"
    from spritz.presentation.local_time import clock_text

    return clock_text(view.node.resume_at)


def _shape(view: NodeView) -> str:
    capacity = view.node.config.capacity
    return f"{capacity.sockets}:{capacity.cores_per_socket}:{capacity.threads_per_core}"


def _free(view: NodeView) -> float | None:
    return None if view.sample is None else view.sample.free_memory_mib


def _load(view: NodeView) -> float | None:
    return None if view.sample is None else view.sample.cpu_load / 100


def _state_field(*, compact: bool, **called: Unpack[Called]) -> NodeField:
    return NodeField(
        "STATE",
        lambda group: node_states.state_word(group.views[0].state_names, compact=compact) if group.views else NA,
        key=lambda partition, view: view.state_names[:1] + tuple(n for n in view.state_names[1:] if n != "CLOUD"),
        sort=lambda group: node_states.state_order(group.views[0]) if group.views else (0, 0),
        **called,
    )


#: every field, by its name
FIELDS: tuple[NodeField, ...] = (
    _least("ALLOCMEM", lambda view: view.memory_allocated_mib, name="allocmem"),
    _of_partition("ALLOCNODES", lambda p: _all(p.allow_alloc_nodes), letter="S", name="allocnodes"),
    _of_partition("AVAIL", lambda p: p.state.value.lower(), letter="a", name="available"),
    NodeField("CLUSTER", lambda group: group.cluster or "N/A", letter="V", name="cluster"),
    _of_node("COMMENT", lambda view: view.node.comment or "(null)", "(null)", name="comment"),
    _least("CORES", lambda view: view.node.config.capacity.cores_per_socket, letter="Y", name="cores"),
    _least("CPUS", cpus, letter="c", name="cpus"),
    _spread("CPU_LOAD", _load, lambda load: f"{load:.2f}", letter="O", name="cpusload"),
    NodeField(
        "CPUS(A/I/O/T)", lambda group: _slashed(cpu_counts(group)), sort=cpu_counts, letter="C", name="cpusstate"
    ),
    _of_partition(
        "DEFAULTTIME",
        lambda p: _time(p.default_time_minutes),
        lambda p: p.default_time_minutes or 0,
        letter="L",
        name="defaulttime",
    ),
    _least("TMP_DISK", lambda view: view.node.config.capacity.tmp_mib, letter="d", name="disk"),
    _of_node("EXTRA", lambda view: view.node.extra or "(null)", "(null)", name="extra"),
    _of_node("AVAIL_FEATURES", _features, "(null)", letter="f", name="features"),
    _of_node("ACTIVE_FEATURES", _active, "(null)", letter="b", name="features_act"),
    _spread("FREE_MEM", _free, lambda mib: str(int(mib)), letter="e", name="freemem"),
    _of_node("GRES", _gres, "(null)", letter="G", name="gres"),
    _of_node("GRES_USED", _gres_used, "(null)", name="gresused"),
    _of_partition("GROUPS", lambda p: _all(p.allow_groups), letter="g", name="groups"),
    _of_partition("MAX_CPUS_PER_NODE", lambda p: _unlimited(p.max_cpus_per_node), letter="B", name="maxcpuspernode"),
    _least("MEMORY", lambda view: view.node.config.capacity.memory_mib, letter="m", name="memory"),
    _listed("NODE_ADDR", lambda view: view.node.address, apart=True, letter="o", name="nodeaddr"),
    NodeField(
        "NODES(A/I)", lambda group: _slashed(node_counts(group)[:2]), sort=node_counts, letter="A", name="nodeai"
    ),
    NodeField(
        "NODES(A/I/O/T)", lambda group: _slashed(node_counts(group)), sort=node_counts, letter="F", name="nodeaiot"
    ),
    _listed("HOSTNAMES", lambda view: view.node.hostname, apart=True, letter="n", name="nodehost"),
    _listed("NODELIST", lambda view: view.node.name, letter="N", name="nodelist"),
    NodeField(
        "NODES", lambda group: str(len(group.views)), sort=lambda group: len(group.views), letter="D", name="nodes"
    ),
    _of_partition("OVERSUBSCRIBE", lambda p: p.oversubscribe, letter="h", name="oversubscribe", aliases=("share",)),
    NodeField(
        "PARTITION",
        lambda group: partition_name(group.partition),
        key=lambda partition, view: partition.name,
        partition=True,
        sort=lambda group: group.partition.name,
        letter="P",
        name="partition",
    ),
    NodeField(
        "PARTITION",
        lambda group: group.partition.name,
        key=lambda partition, view: partition.name,
        partition=True,
        sort=lambda group: group.partition.name,
        letter="R",
        name="partitionname",
    ),
    _least("PORT", lambda view: view.node.config.port, name="port"),
    _of_partition("PREEMPT_MODE", lambda p: p.preempt_mode or "OFF", letter="M", name="preemptmode"),
    _of_partition(
        "PRIO_JOB_FACTOR",
        lambda p: str(p.priority_job_factor),
        lambda p: p.priority_job_factor,
        letter="I",
        name="priorityjobfactor",
    ),
    _of_partition(
        "PRIO_TIER", lambda p: str(p.priority_tier), lambda p: p.priority_tier, letter="p", name="prioritytier"
    ),
    _of_node("REASON", _reason, NONE, letter="E", name="reason"),
    _of_node("RESERVATION", lambda view: view.reservation, "", name="reservation"),
    _of_node("RESUMEAFTER", _resumes, "None", name="resumeafter"),
    _of_partition("ROOT", lambda p: "yes" if p.root_only else "no", letter="r", name="root"),
    _of_partition("JOB_SIZE", _job_size, letter="s", name="size"),
    _of_node("S:C:T", _shape, exact=True, letter="z", name="socketcorethread"),
    _least("SOCKETS", lambda view: view.node.config.capacity.sockets, letter="X", name="sockets"),
    _state_field(compact=True, letter="t", name="statecompact"),
    NodeField(
        "STATECOMPLETE",
        lambda group: node_states.complete_word(group.views[0].state_names) if group.views else NA,
        key=lambda partition, view: view.state_names,
        name="statecomplete",
    ),
    _state_field(compact=False, letter="T", name="statelong"),
    _least("THREADS", lambda view: view.node.config.capacity.threads_per_core, letter="Z", name="threads"),
    _of_partition(
        "TIMELIMIT", lambda p: _time(p.max_time_minutes), lambda p: p.max_time_minutes, letter="l", name="time"
    ),
    _of_node("TIMESTAMP", _timestamp, "Unknown", letter="H", name="timestamp"),
    _of_node("USER", _user, "Unknown", letter="u", name="user"),
    _of_node("USER", _user_long, "Unknown", letter="U", name="userlong"),
    _of_node("VERSION", lambda view: view.node.version or "(null)", letter="v", name="version"),
    _least("WEIGHT", lambda view: view.node.config.weight, letter="w", name="weight"),
)

#: by letter, for `-o`
LETTERS = by_letter(FIELDS)

#: by name, for `-O`, in lower case
NAMES = by_name(FIELDS)
