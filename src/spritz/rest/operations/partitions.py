"""Partitions. Source: OpenAPI `partition_info`; scontrol(1); slurm.conf(5)."""

from __future__ import annotations

from typing import Any

from msgspec import ValidationError, convert

from spritz.model.commands.cluster import CreatePartition, DeletePartition, UpdatePartition
from spritz.model.commands.job import Done
from spritz.model.ids import INFINITE
from spritz.model.partition import Partition
from spritz.model.queries.partitions import ListPartitions, Partitions
from spritz.presentation.json.partitions import partition_json
from spritz.presentation.json.values import moment
from spritz.rest.answers import Answer
from spritz.rest.operations import Ask, Refused, Result, operation
from spritz.rest.operations.job_fields import bad
from spritz.rest.operations.nodes import names_of, views_of

#: Flag of the document -> field of a partition.
_FLAGS = {
    "DEFAULT": "default",
    "HIDDEN": "hidden",
    "NO_ROOT": "disable_root_jobs",
    "ROOT_ONLY": "root_only",
    "REQ_RESV": "require_reservation",
    "LLN": "lln",
    "EXCLUSIVE_USER": "exclusive_user",
    "EXCLUSIVE_TOPO": "exclusive_topo",
    "PDOI": "power_down_on_idle",
}


async def _partitions(ask: Ask, names: tuple[str, ...] = ()) -> Result:
    answer = await ask.controller.call(ListPartitions(names=names, all=True), Partitions)
    _, views = await views_of(ask)
    by_name = {view.node.name: view for view in views}
    records = [
        {
            **partition_json(partition, by_name),
            "cluster": ask.daemons.cluster,
            "flags": [flag for flag, field in _FLAGS.items() if getattr(partition, field)],
            "preempt_mode": [word for word in partition.preempt_mode.upper().split(",") if word],
        }
        for partition in answer.partitions
    ]
    for record, one in zip(records, answer.partitions, strict=True):
        record["partition"] = {
            **record["partition"],
            "oversubscribe": one.oversubscribe,
            "exclusive": "USER" if one.exclusive_user else "TOPO" if one.exclusive_topo else "",
        }
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


def _changes(given: dict[str, Any]) -> dict[str, object]:
    """The fields that a record sets. Zero and "" mean "not set", because clients send whole records."""
    changes: dict[str, object] = {}

    def inner(*path: str) -> Any:
        value: Any = given
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def texts(field: str, *path: str) -> None:
        value = inner(*path)
        if value:
            changes[field] = [word for word in value.split(",") if word and word.upper() != "ALL"]

    def number(field: str, *path: str) -> None:
        value = inner(*path)
        if value:
            if not 0 < value <= INFINITE:
                raise bad("/".join(path), f"{value} is out of range")
            changes[field] = int(value)

    nodes = inner("nodes", "configured")
    if nodes:
        changes["nodes"], changes["nodes_text"] = list(names_of(nodes)), nodes
    texts("allow_accounts", "accounts", "allowed")
    texts("deny_accounts", "accounts", "deny")
    texts("allow_groups", "groups", "allowed")
    texts("allow_qos", "qos", "allowed")
    texts("deny_qos", "qos", "deny")
    allowed = inner("nodes", "allowed_allocation")
    if allowed:
        changes["allow_alloc_nodes"] = [] if allowed.upper() == "ALL" else list(names_of(allowed))
    for field, *path in (("qos", "qos", "assigned"), ("alternate", "alternate"), ("topology", "topology")):
        if inner(*path):
            changes[field] = inner(*path)
    number("default_memory_mib_per_cpu", "defaults", "partition_memory_per_cpu")
    number("default_memory_mib_per_node", "defaults", "partition_memory_per_node")
    number("default_time_minutes", "defaults", "time")
    number("max_memory_mib_per_cpu", "maximums", "partition_memory_per_cpu")
    number("max_memory_mib_per_node", "maximums", "partition_memory_per_node")
    number("max_cpus_per_node", "maximums", "cpus_per_node")
    number("max_cpus_per_socket", "maximums", "cpus_per_socket")
    number("max_nodes", "maximums", "nodes")
    number("max_time_minutes", "maximums", "time")
    number("over_time_minutes", "maximums", "over_time_limit")
    number("min_nodes", "minimums", "nodes")
    number("grace_seconds", "grace_time")
    number("priority_job_factor", "priority", "job_factor")
    number("priority_tier", "priority", "tier")
    number("suspend_timeout_seconds", "timeouts", "suspend")
    number("resume_timeout_seconds", "timeouts", "resume")
    number("suspend_seconds", "suspend_time")
    states = inner("partition", "state") or []
    if states:
        if len(states) != 1 or states[0] not in ("UP", "DOWN", "DRAIN", "INACTIVE"):
            raise bad("partition/state", "one of UP, DOWN, DRAIN and INACTIVE is accepted")
        changes["state"] = states[0]
    for flag in given.get("flags") or ():
        if flag in _FLAGS:
            changes[_FLAGS[flag]] = True
    if given.get("preempt_mode"):
        words = [word for word in given["preempt_mode"] if word != "CLUSTER_GLOBAL"]
        changes["preempt_mode"] = ",".join("OFF" if word == "DISABLED" else word for word in words)
    share = inner("partition", "oversubscribe")
    if share:
        word, _, count = share.upper().partition(":")
        if word not in ("NO", "EXCLUSIVE", "YES", "FORCE") or (count and not count.isdigit()):
            raise bad("partition/oversubscribe", "NO, EXCLUSIVE, YES:#, and FORCE:# are accepted")
        changes["oversubscribe"] = share.upper()
    return changes
