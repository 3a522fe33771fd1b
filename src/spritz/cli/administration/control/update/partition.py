"""`create`, `update` and `delete PartitionName=…`: keys and values are read as slurm.conf's are.

Source: scontrol(1) PARTITIONS - SPECIFICATIONS FOR CREATE, UPDATE, AND DELETE COMMANDS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from spritz.cli.administration.control.pairs import find, split, unquoted
from spritz.client.errors import RemoteError
from spritz.config.build import tres_weights
from spritz.config.kinds import BOOL
from spritz.config.schema.partitions import PARTITION_KEYS
from spritz.model.commands.cluster import CreatePartition, DeletePartition, UpdatePartition
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.node.partition import Partition
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.model.queries.partitions import ListPartitions, Partitions
from spritz.notation.hostlist import HostlistError, expand

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session
    from spritz.config.schema.key import Key

#: key of slurm.conf -> field of `model.node.partition.Partition`
FIELDS = {
    "AllocNodes": "allow_alloc_nodes",
    "AllowAccounts": "allow_accounts",
    "AllowGroups": "allow_groups",
    "AllowQos": "allow_qos",
    "Alternate": "alternate",
    "CpuBind": "cpu_bind",
    "Default": "default",
    "DefaultTime": "default_time_minutes",
    "DefCpuPerGPU": "default_cpus_per_gpu",
    "DefMemPerCPU": "default_memory_mib_per_cpu",
    "DefMemPerGPU": "default_memory_mib_per_gpu",
    "DefMemPerNode": "default_memory_mib_per_node",
    "DenyAccounts": "deny_accounts",
    "DenyGroups": "deny_groups",
    "DenyQos": "deny_qos",
    "DisableRootJobs": "disable_root_jobs",
    "Exclusive": "exclusive_user",
    "ExclusiveTopo": "exclusive_topo",
    "ExclusiveUser": "exclusive_user",
    "GraceTime": "grace_seconds",
    "Hidden": "hidden",
    "JobDefaults": "default_cpus_per_gpu",
    "LLN": "lln",
    "MaxCPUsPerNode": "max_cpus_per_node",
    "MaxCPUsPerSocket": "max_cpus_per_socket",
    "MaxMemPerCPU": "max_memory_mib_per_cpu",
    "MaxMemPerNode": "max_memory_mib_per_node",
    "MaxNodes": "max_nodes",
    "MaxTime": "max_time_minutes",
    "MinNodes": "min_nodes",
    "Nodes": "nodes",
    "OverSubscribe": "oversubscribe",
    "OverTimeLimit": "over_time_minutes",
    "PowerDownOnIdle": "power_down_on_idle",
    "PreemptMode": "preempt_mode",
    "PriorityJobFactor": "priority_job_factor",
    "PriorityTier": "priority_tier",
    "QOS": "qos",
    "ReqResv": "require_reservation",
    "ResumeTimeout": "resume_timeout_seconds",
    "RootOnly": "root_only",
    "State": "state",
    "SuspendTime": "suspend_seconds",
    "SuspendTimeout": "suspend_timeout_seconds",
    "Topology": "topology",
    "TRESBillingWeights": "billing_weights",
}

#: other keys that Slurm takes
REFUSED = {
    "SelectTypeParameters": "it is read from slurm.conf",
}
_OTHER_NAMES = {"Shared": "OverSubscribe", "MaxTimeLimit": "MaxTime", "Priority": "PriorityTier"}


def _changes(session: Session, words: list[str]) -> tuple[str, dict[str, object]]:
    """(name, changes). Raises SpritzError for what is wrong."""
    name = ""
    changes: dict[str, object] = {}
    table = {**dict.fromkeys(FIELDS, ""), **REFUSED, **dict.fromkeys(_OTHER_NAMES, "")}
    for word in words:
        key, value = split(word)
        if "=" not in word:
            raise _Unread(f"Invalid input: {word}  Request aborted")
        value = unquoted(value)
        if len(key) >= 3 and "partitionname".startswith(key.lower()):
            name = value
            continue
        row = find(key, table)
        if row is None:
            session.context.error(f"Update of this parameter is not supported: {word}\n")
            raise _Unread("Request aborted")
        known, why = row
        if why:
            raise SpritzError(f"update of a partition's {known} is not supported by Spritz: {why}")
        known = _OTHER_NAMES.get(known, known)
        changes.update(_value(session, known, value, word))
    return name, changes


def _value(session: Session, key: str, text: str, word: str) -> dict[str, object]:
    """One change. Raises SpritzError with scontrol's words for a wrong value."""
    if key == "JobDefaults":
        return _job_defaults(text)
    field = FIELDS[key]
    if key == "Nodes":
        names = _nodes(session, text)
        return {"nodes": names, "nodes_text": text}

    entry = next(candidate for candidate in PARTITION_KEYS if candidate.name == key)
    try:
        if text.startswith("-") and key not in ("MaxTime", "DefaultTime"):
            raise ValueError(text)  # slurm.conf takes -1 for no limit; scontrol does not
        value = entry.kind.parse(text)
    except ValueError as error:
        raise _refused(session, entry, text, word) from error
    if key == "Exclusive":
        return {"exclusive": value}
    if key == "PreemptMode" and isinstance(value, tuple):
        value = ",".join(str(item) for item in value) or "OFF"
    if key == "CpuBind" and value == "off":
        value = ""
    if key == "AllocNodes":
        value = () if text.upper() == "ALL" else tuple(expand(text))
    if key == "TRESBillingWeights" and isinstance(value, tuple):
        words = [str(word) for word in value]
        return {field: [list(pair) for pair in tres_weights(words)], "billing_weights_text": ",".join(words)}
    return {field: list(value) if isinstance(value, tuple) else value}


class _Unread(SpritzError):
    """Words that Slurm's scontrol does not accept; it then also prints `slurm_update error: No error`."""


class _Asked(SpritzError):
    """A value that Slurm's scontrol sends, so that its controller refuses it."""


_WORDS = {
    "OverSubscribe": "NO, EXCLUSIVE, YES:#, and FORCE:#",
    "State": "UP, DOWN, DRAIN and INACTIVE",
}


def _refused(session: Session, entry: Key, text: str, word: str) -> SpritzError:
    """scontrol's words for a value that is none."""
    key, hint = entry.name, f"accepted: {entry.kind.accepted}"
    if key == "MaxNodes":
        return SpritzError(f'Invalid numeric value "{text}" for MaxNodes.', hint=hint)
    if key == "MinNodes":
        return SpritzError(f'"{text}" is not a valid node count', hint=hint)
    if key == "TRESBillingWeights":
        return _Asked("Invalid TRESBillingWeights specification", hint=hint)
    if entry.kind is BOOL or key in _WORDS:
        session.context.error(f"Invalid input: {word}")
        return _Unread(f"Acceptable {key} values are {_WORDS.get(key, 'YES and NO')}")
    if key in ("MaxTime", "DefaultTime"):
        return _Unread(f"Invalid input {word}", hint=hint)
    if key == "PreemptMode":
        return _Unread(f"Invalid input: {word}", hint=hint)
    return _Unread(f"Invalid {key} value: {text}", hint=hint)


def _job_defaults(text: str) -> dict[str, object]:
    """`DefCpuPerGPU=4,DefMemPerGPU=1000`; nothing takes them back. Raises SpritzError in Slurm's words."""
    changes: dict[str, object] = {"default_cpus_per_gpu": 0, "default_memory_mib_per_gpu": 0}
    fields = {"defcpupergpu": "default_cpus_per_gpu", "defmempergpu": "default_memory_mib_per_gpu"}
    for word in text.split(",") if text else ():
        name, equals, amount = word.partition("=")
        field = fields.get(name.strip().lower())
        if field is None or not equals or not (amount.isascii() and amount.isdecimal()) or int(amount) >= 1 << 31:
            raise _Asked("Invalid JobDefaults specification", hint=f"JobDefaults={text}")
        changes[field] = int(amount)
    return changes


def _exclusive(word: str, oversubscribe: str) -> dict[str, object]:
    """`Exclusive=NO|NODE|USER|TOPO` is one word for three fields."""
    changes: dict[str, object] = {"exclusive_user": word == "USER", "exclusive_topo": word == "TOPO"}
    if (word == "NODE") is not (oversubscribe == "EXCLUSIVE"):
        changes["oversubscribe"] = "EXCLUSIVE" if word == "NODE" else "NO"
    return changes


def _nodes(session: Session, text: str) -> list[str]:
    if text.upper() == "ALL":
        return [view.node.name for view in session.joined(ListNodes(all=True, pieces=True), Nodes, "nodes").nodes]
    try:
        return expand(text)
    except HostlistError as error:
        raise SpritzError(str(error)) from error


def run(session: Session, words: list[str]) -> int:
    """`scontrol update PartitionName=NAME KEY=VALUE…`. Returns the exit status."""
    try:
        name, changes = _changes(session, words)
    except (_Asked, _Unread) as error:
        if isinstance(error, _Unread):
            session.context.error(error.message)
        session.say(f"slurm_update error: {'No error' if isinstance(error, _Unread) else error.message}")
        session.hint(error.hint)
        return 1
    if not changes:
        session.context.error("No changes specified")
        return 1
    if "exclusive" in changes:
        (partition,) = session.call(ListPartitions(names=(name,)), Partitions).partitions
        changes.update(_exclusive(str(changes.pop("exclusive")), partition.oversubscribe))
    session.call(UpdatePartition(name=name, changes=changes), Done)
    return 0


def create(session: Session, words: list[str]) -> int:
    """`scontrol create PartitionName=NAME KEY=VALUE…`. Returns the exit status."""
    try:
        name, changes = _changes(session, words)
    except _Asked as error:
        session.say(f"Error creating the partition: {error.message}")
        session.hint(error.hint)
        return 1
    if not name:
        session.say("PartitionName must be given.")
        return 1
    if "exclusive" in changes:
        changes.update(_exclusive(str(changes.pop("exclusive")), "NO"))
    # As Slurm's: at least one node, where a partition of slurm.conf says none.
    plain = {"name": name, "min_nodes": 1, **changes}
    partition = msgspec.convert(plain, Partition)
    try:
        session.call(CreatePartition(partition=partition), Done)
    except RemoteError as error:
        session.say(f"Error creating the partition: {error.message}")
        session.hint(error.hint)
        return 1
    return 0


def delete(session: Session, word: str, name: str) -> int:
    """`delete PartitionName=NAME`: refused by the controller while jobs run in it."""
    try:
        session.call(DeletePartition(name=name), Done)
    except RemoteError as error:
        session.say(f"delete_partition {word}: {error.message}")
        session.hint(error.hint)
        return 1
    return 0
