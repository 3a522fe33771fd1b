"""Nodes. Source: OpenAPI `node`, `update_node_msg`; scontrol(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.model.commands.cluster import CreateNodes, DeleteNodes, UpdateNode
from spritz.model.commands.job import Done
from spritz.model.ids import INFINITE
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.notation.errors import NotationError
from spritz.notation.hostlist import expand
from spritz.presentation.json.nodes import node_json
from spritz.presentation.json.values import moment
from spritz.rest.answers import Answer, Refused
from spritz.rest.operations import Ask, Result, operation
from spritz.rest.operations.job_fields import bad
from spritz.rest.users import uid_of

if TYPE_CHECKING:
    from spritz.model.queries.nodes import NodeView

#: States of the document -> words of `scontrol update`; "" for states that cannot be requested.
_STATES = {"NOT_RESPONDING": "NORESP", "REBOOT_CANCELED": "CANCEL_REBOOT", "POWER_DRAIN": "POWER_DOWN_ASAP"}
_ASKED = frozenset(
    (
        "CANCEL_REBOOT", "DRAIN", "DOWN", "FAIL", "FUTURE", "IDLE", "NORESP", "POWER_DOWN", "POWER_DOWN_ASAP",
        "POWER_DOWN_FORCE", "POWER_UP", "RESUME", "UNDRAIN",
    )
)  # fmt: skip


async def views_of(ask: Ask, names: tuple[str, ...] = ()) -> tuple[float, list[NodeView]]:
    """(controller's time, the named nodes, or without names all that the caller may see)."""
    now, views = 0.0, []
    async for piece in ask.controller.stream(ListNodes(names=names, all=True, pieces=True), Nodes):
        now = piece.now
        views += piece.nodes
    return now, views


def names_of(text: str) -> tuple[str, ...]:
    """Node names of a hostlist, at least one. Raises Refused."""
    try:
        names = tuple(expand(text))
    except NotationError as error:
        raise Refused("ESLURM_INVALID_NODE_NAME", str(error), text[:80]) from error
    if not names:
        raise Refused("ESLURM_INVALID_NODE_NAME", source=text[:80])
    return names


def _records(views: list[NodeView], ask: Ask) -> list[dict[str, Any]]:
    return [{**node_json(view), "cluster_name": ask.daemons.cluster} for view in views]


@operation("GET /slurm/nodes")
async def get_nodes(ask: Ask) -> Result:
    """All nodes that the caller may see."""
    now, views = await views_of(ask)
    return Answer(body={"nodes": _records(views, ask), "last_update": moment(now)})


@operation("GET /slurm/node/{node_name}")
async def get_node(ask: Ask) -> Result:
    """A node, or the nodes of a hostlist."""
    now, views = await views_of(ask, names_of(ask.path["node_name"]))
    return Answer(body={"nodes": _records(views, ask), "last_update": moment(now)})


@operation("POST /slurm/node/{node_name}")
async def post_node(ask: Ask) -> Result:
    """Change a node, or the nodes of a hostlist."""
    return await _update(ask, names_of(ask.path["node_name"]))


@operation("POST /slurm/nodes")
async def post_nodes(ask: Ask) -> Result:
    """Change the nodes that `name` lists."""
    words = ",".join(word for word in ask.body.get("name") or () if word)
    if not words:
        raise Refused("ESLURM_INVALID_NODE_NAME", "no nodes are named", "name")
    return await _update(ask, names_of(words))


async def _update(ask: Ask, names: tuple[str, ...]) -> Result:
    fields = ask.body
    if fields.get("gres") or fields.get("cpu_bind"):
        raise bad(
            "gres" if fields.get("gres") else "cpu_bind", "set it in slurm.conf and reconfigure", "ESLURM_NOT_SUPPORTED"
        )
    changes: dict[str, object] = {}
    for name, field in (("comment", "comment"), ("extra", "extra"), ("topology_str", "topology")):
        if fields.get(name) is not None:
            changes[field] = fields[name]
    for name, field in (("features", "features"), ("features_act", "active_features")):
        if fields.get(name) is not None:
            changes[field] = list(fields[name])
    for name, field in (("address", "address"), ("hostname", "hostname")):
        if fields.get(name):
            changes[field] = ",".join(fields[name])
    weight = fields.get("weight")
    if weight is not None:
        if not 0 <= weight < INFINITE - 1:
            raise bad("weight", f"{weight} is out of range")
        changes["weight"] = int(weight)
    state = _state(fields.get("state") or [])
    reason = fields.get("reason") or ""
    if state in ("DOWN", "DRAIN", "FAIL") and not reason:
        raise bad("reason", "DOWN, DRAIN and FAIL need a reason")
    after = fields.get("resume_after")
    uid = await uid_of(fields["reason_uid"]) if fields.get("reason_uid") else None
    if not (state or reason or changes or after is not None):
        raise Refused("ESLURM_REST_INVALID_QUERY", "no field of the node to change", "#")
    request = UpdateNode(
        names=names,
        state=state,
        reason=reason,
        reason_uid=uid,
        resume_after_seconds=None if after is None else 0 if after >= INFINITE else int(after),
        changes=changes,
    )
    await ask.controller.call(request, Done)
    return Answer()


def _state(words: list[str]) -> str:
    asked = [_STATES.get(word, word) for word in words]
    chosen = [word for word in asked if word in _ASKED]
    if len(asked) > 1 and "IDLE" in chosen:
        chosen.remove("IDLE")  # the base state, sent together with its flags
    if len(chosen) > 1 or (asked and not chosen):
        raise Refused("ESLURM_INVALID_NODE_STATE", f"no state to ask for: {'+'.join(words)}", "state")
    return chosen[0] if chosen else ""


@operation("DELETE /slurm/node/{node_name}")
async def delete_node(ask: Ask) -> Result:
    await ask.controller.call(DeleteNodes(names=names_of(ask.path["node_name"])), Done)
    return Answer()


@operation("POST /slurm/new/node")
async def new_node(ask: Ask) -> Result:
    """Create dynamic nodes from a NodeName line in the syntax of slurm.conf."""
    line = (ask.body.get("node_conf") or "").strip()
    if not line or "\n" in line:
        raise bad("node_conf", "expected a line of slurm.conf: NodeName=… …")
    await ask.controller.call(CreateNodes(line=line), Done)
    return Answer()
