"""Partitions. Source: OpenAPI `partition_info`; scontrol(1); slurm.conf(5)."""

from __future__ import annotations

from typing import Any

from msgspec import ValidationError, convert

from spritz.model.commands.cluster import CreatePartition, DeletePartition, UpdatePartition
from spritz.model.commands.job import Done
from spritz.model.ids import INFINITE
from spritz.model.node.partition import Partition
from spritz.model.queries.partitions import ListPartitions, Partitions
from spritz.presentation.json.partitions import FLAGS, newest_partition_json
from spritz.presentation.json.values import moment
from spritz.rest.answers import Answer, Refused
from spritz.rest.operations import Ask, Result, operation
from spritz.rest.operations.job_fields import bad
from spritz.rest.operations.nodes import names_of, views_of


async def _partitions(ask: Ask, names: tuple[str, ...] = ()) -> Result:
    answer = await ask.controller.call(ListPartitions(names=names, all=True), Partitions)
    _, views = await views_of(ask)
    by_name = {view.node.name: view for view in views}
    records = [newest_partition_json(partition, by_name, ask.daemons.cluster) for partition in answer.partitions]
    return Answer(body={"partitions": records, "last_update": moment(answer.now)})


@operation("GET /slurm/partitions")
async def get_partitions(ask: Ask) -> Result:
    """All partitions that the caller may see."""
    return await _partitions(ask)


@operation("GET /slurm/partition/{partition_name}")
async def get_partition(ask: Ask) -> Result:
    return await _partitions(ask, (ask.path["partition_name"],))


@operation("DELETE /slurm/partition/{partition_name}")
async def delete_partition(ask: Ask) -> Result:
    """Delete a partition. slurmctld refuses if a job uses it."""
    await ask.controller.call(DeletePartition(name=ask.path["partition_name"]), Done)
    return Answer()


@operation("POST /slurm/partitions")
async def post_partitions(ask: Ask) -> Result:
    """Create partitions, or change existing ones."""
    partitions = ask.body.get("partitions") or []
    if not partitions:
        raise Refused("ESLURM_REST_INVALID_QUERY", "no partitions are given", "partitions")
    known = {
        partition.name for partition in (await ask.controller.call(ListPartitions(all=True), Partitions)).partitions
    }
    prepared: list[CreatePartition | UpdatePartition] = []
    for record in partitions:
        name = record.get("name") or ""
        if not name:
            raise Refused("ESLURM_INVALID_PARTITION_NAME", "a partition has no name", "partitions")
        changes = _changes(record)
        if name in known:
            prepared.append(UpdatePartition(name=name, changes=changes))
        else:
            try:
                whole = convert({"name": name, "min_nodes": 1, **changes}, Partition)
            except ValidationError as error:
                raise bad("partitions", str(error)) from error
            prepared.append(CreatePartition(partition=whole))
    for request in prepared:
        await ask.controller.call(request, Done)
    return Answer()


#: Path in a record -> field of a partition: counts and times.
_NUMBERS: dict[tuple[str, ...], str] = {
    ("defaults", "partition_memory_per_cpu"): "default_memory_mib_per_cpu",
    ("defaults", "partition_memory_per_node"): "default_memory_mib_per_node",
    ("defaults", "time"): "default_time_minutes",
    ("maximums", "partition_memory_per_cpu"): "max_memory_mib_per_cpu",
    ("maximums", "partition_memory_per_node"): "max_memory_mib_per_node",
    ("maximums", "cpus_per_node"): "max_cpus_per_node",
    ("maximums", "cpus_per_socket"): "max_cpus_per_socket",
    ("maximums", "nodes"): "max_nodes",
    ("maximums", "time"): "max_time_minutes",
    ("maximums", "over_time_limit"): "over_time_minutes",
    ("minimums", "nodes"): "min_nodes",
    ("grace_time",): "grace_seconds",
    ("priority", "job_factor"): "priority_job_factor",
    ("priority", "tier"): "priority_tier",
    ("timeouts", "suspend"): "suspend_timeout_seconds",
    ("timeouts", "resume"): "resume_timeout_seconds",
    ("suspend_time",): "suspend_seconds",
}
#: Lists of names with commas between them; ALL is the same as none.
_LISTS: dict[tuple[str, ...], str] = {
    ("accounts", "allowed"): "allow_accounts",
    ("accounts", "deny"): "deny_accounts",
    ("groups", "allowed"): "allow_groups",
    ("qos", "allowed"): "allow_qos",
    ("qos", "deny"): "deny_qos",
}
_NAMES: dict[tuple[str, ...], str] = {
    ("qos", "assigned"): "qos",
    ("alternate",): "alternate",
    ("topology",): "topology",
}


def _changes(given: dict[str, Any]) -> dict[str, object]:
    """The fields that a record sets. Zero and "" mean "not set", because clients send whole records."""
    changes: dict[str, object] = {}
    if nodes := _inner(given, "nodes", "configured"):
        changes["nodes"], changes["nodes_text"] = list(names_of(nodes)), nodes
    if allowed := _inner(given, "nodes", "allowed_allocation"):
        changes["allow_alloc_nodes"] = [] if allowed.upper() == "ALL" else list(names_of(allowed))
    for path, field in _LISTS.items():
        if names := _inner(given, *path):
            changes[field] = [word for word in names.split(",") if word and word.upper() != "ALL"]
    for path, field in _NAMES.items():
        if name := _inner(given, *path):
            changes[field] = name
    for path, field in _NUMBERS.items():
        if number := _inner(given, *path):
            if not 0 < number <= INFINITE:
                raise bad("/".join(path), f"{number} is out of range")
            changes[field] = int(number)
    if states := _inner(given, "partition", "state"):
        if len(states) != 1 or states[0] not in ("UP", "DOWN", "DRAIN", "INACTIVE"):
            raise bad("partition/state", "one of UP, DOWN, DRAIN and INACTIVE is accepted")
        changes["state"] = states[0]
    for flag in given.get("flags") or ():
        if flag in FLAGS:
            changes[FLAGS[flag]] = True
    if given.get("preempt_mode"):
        words = [word for word in given["preempt_mode"] if word != "CLUSTER_GLOBAL"]
        changes["preempt_mode"] = ",".join("OFF" if word == "DISABLED" else word for word in words)
    if share := _inner(given, "partition", "oversubscribe"):
        word, _, count = share.upper().partition(":")
        if word not in ("NO", "EXCLUSIVE", "YES", "FORCE") or (count and not count.isdecimal()):
            raise bad("partition/oversubscribe", "NO, EXCLUSIVE, YES:#, and FORCE:# are accepted")
        changes["oversubscribe"] = share.upper()
    return changes


def _inner(record: dict[str, Any], *path: str) -> Any:
    """The value at a path of keys; None if a key is missing."""
    value: Any = record
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
