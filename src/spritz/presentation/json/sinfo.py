"""`sinfo --json`: nodes grouped by partition and state. Source: OpenAPI `sinfo` v0.0.43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.json.envelope import show as show_answer
from spritz.presentation.json.partitions import partition_json
from spritz.presentation.json.values import moment, number
from spritz.presentation.node.node_fields import LETTERS, cpu_counts, node_counts
from spritz.presentation.node.node_groups import make_groups
from spritz.presentation.node.node_text import gres_text, gres_used_text
from spritz.presentation.users import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from spritz.model.node.partition import Partition
    from spritz.model.queries.nodes import NodeView
    from spritz.presentation.json.envelope import Output
    from spritz.presentation.node.node_groups import Group

    Json = dict[str, Any]

#: the fields that separate groups: all except names and measurements
_KEYS = "tcmdwXYZfbGEuH"


def show(output: Output, version_word: str, groups: Sequence[Json]) -> None:
    """Print `groups_json` of the clusters."""
    show_answer(output, version_word, {"sinfo": groups})


def groups_json(cluster: str, partitions: Sequence[Partition], views: dict[str, NodeView]) -> list[Json]:
    """The nodes of a cluster, grouped by partition and state."""
    keys = [key for key in (LETTERS[letter].key for letter in _KEYS) if key is not None]
    groups = make_groups(partitions, views, keys, by_partition=True, by_node=False, empty=True)
    return [{**group_json(group, views), "cluster": cluster} for group in groups]


def group_json(group: Group, views: Mapping[str, NodeView]) -> Json:
    first = group.views[0] if group.views else None
    node = first.node if first is not None else None
    names = ("allocated", "idle", "other", "total")

    def extent(value: Callable[[NodeView], int]) -> Json:
        values = [value(view) for view in group.views] or [0]
        return {"minimum": min(values), "maximum": max(values)}

    loads = [view.sample.cpu_load for view in group.views if view.sample is not None]
    free = [view.sample.free_memory_mib for view in group.views if view.sample is not None]
    return {
        "port": node.config.port if node is not None else 0,
        "node": {"state": list(first.state_names) if first is not None else []},
        "nodes": {
            **dict(zip(names, node_counts(group), strict=True)),
            "hostnames": [view.node.hostname for view in group.views],
            "addresses": [view.node.address for view in group.views],
            "nodes": [view.node.name for view in group.views],
        },
        "cpus": {
            **dict(zip(names, cpu_counts(group), strict=True)),
            **extent(lambda view: view.node.config.capacity.cpus),
            "load": {"minimum": number(min(loads, default=None)), "maximum": number(max(loads, default=None))},
            "per_node": {"max": number(group.partition.max_cpus_per_node)},
        },
        "sockets": extent(lambda view: view.node.config.capacity.sockets),
        "cores": extent(lambda view: view.node.config.capacity.cores_per_socket),
        "threads": extent(lambda view: view.node.config.capacity.threads_per_core),
        "disk": extent(lambda view: view.node.config.capacity.tmp_mib),
        "memory": {
            **extent(lambda view: view.node.config.capacity.memory_mib),
            "allocated": sum(view.memory_allocated_mib for view in group.views),
            "free": {"minimum": number(min(free, default=None)), "maximum": number(max(free, default=None))},
        },
        "weight": extent(lambda view: view.node.config.weight),
        "features": {
            "total": ",".join(node.available) if node is not None else "",
            "active": ",".join(node.active) if node is not None else "",
        },
        "gres": {
            "total": gres_text(first) if first is not None else "",
            "used": gres_used_text(first, indexes=True) if first is not None else "",
        },
        "cluster": "",
        "comment": node.comment if node is not None else "",
        "extra": node.extra if node is not None else "",
        "reason": {
            "description": node.reason if node is not None else "",
            "time": moment(node.reason_at if node is not None else 0),
            "user": name_of(node.reason_uid) if node is not None and node.reason else "",
        },
        "reservation": "",
        "partition": partition_json(group.partition, views),
    }
