"""Features that nodes can change: helpers.conf, and what a node would have to change for a job.

A feature is *changeable* if a helper program reports and sets it. It is *available* on a node that could have it, and
*active* on a node that has it now. A job that asks for a feature which is available and not active has its nodes
rebooted with it. Pure; shared by core and scheduling, so that both accept the same nodes.

Source: helpers.conf(5); sbatch(1) --constraint, --delay-boot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.notation import features
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from collections.abc import Collection

    from spritz.model.cluster.settings import FeaturePolicy
    from spritz.model.node.record import Node
    from spritz.notation.features import Constraint


class Unclear(ValueError):
    """Nodes cannot be changed for this constraint; the text says why."""


def ways(policy: FeaturePolicy, text: str) -> tuple[tuple[str, ...], ...]:
    """Sets of features, one of which a changed node must have in full; empty if the constraint names no changeable
    feature.

    Raises Unclear if it is more than `a&b` or `a|b`, or asks for features that exclude each other.
    """
    if not text or not policy.names:
        return ()
    try:
        tree = features.parse(text)
    except NotationError:
        return ()
    if tree is None or set(policy.names).isdisjoint(features.names(tree)):
        return ()
    sets = _ways(tree)
    possible = tuple(way for way in sets if not _excluded(policy, way))
    if not possible:
        raise Unclear(f"{' and '.join(_excluded(policy, sets[0]))} exclude each other")
    return possible


def _ways(tree: Constraint) -> tuple[tuple[str, ...], ...]:
    if isinstance(tree, features.Feature):
        parts: tuple[features.Feature, ...] = (tree,)
        kind = "and"
    elif tree.kind == "one" or not all(isinstance(part, features.Feature) for part in tree.parts):
        raise Unclear("features that a node can change stand in no parentheses or brackets")
    else:
        parts, kind = tuple(part for part in tree.parts if isinstance(part, features.Feature)), tree.kind
    if tree.count or any(part.count for part in parts):
        raise Unclear("features that a node can change have no counts")
    names = tuple(dict.fromkeys(part.name for part in parts))
    return (names,) if kind == "and" else tuple((name,) for name in names)


def _excluded(policy: FeaturePolicy, way: Collection[str]) -> list[str]:
    """Features of it that exclude each other."""
    for group in policy.exclusive:
        clashing = [name for name in group if name in way]
        if len(clashing) > 1:
            return clashing
    return []


def to_activate(
    ways: tuple[tuple[str, ...], ...], active: Collection[str], changeable: Collection[str]
) -> tuple[str, ...] | None:
    """The features that a node must change to for one of `ways`: () for none, None if it cannot."""
    best: tuple[str, ...] | None = None
    for way in ways:
        missing = [name for name in way if name not in active]
        if not missing:
            return ()
        # As in Slurm, the helper gets all changeable features that the job needs.
        if best is None and all(name in changeable for name in missing):
            best = tuple(name for name in way if name in changeable)
    return best


def may_change(policy: FeaturePolicy, user: str, ways: tuple[tuple[str, ...], ...], *, reboots: bool) -> bool:
    """Whether AllowUserBoot permits changes for this user's jobs, and a RebootProgram exists (`reboots`) if one is
    needed.
    """
    if policy.users and user not in policy.users:
        return False
    return reboots or any(set(way) & set(policy.names) <= set(policy.rebootless) for way in ways)


def boots_from(policy: FeaturePolicy, delay_seconds: int | None, eligible_at: float) -> float:
    """When nodes may be changed for a job; 0.0: at any time. `delay_seconds`: its own --delay-boot.

    Without a delay the clock does not matter, which may have been set back since the job became eligible.
    """
    delay = policy.delay_seconds if delay_seconds is None else delay_seconds
    return eligible_at + delay if delay else 0.0


def active_with(node: Node, given: Collection[str]) -> tuple[str, ...]:
    """Active features of the node if slurm.conf gives it `given`; of those that helpers report, the reported ones."""
    if node.features_changeable is None:
        return tuple(given)
    reported = node.features_changeable
    fixed = (name for name in given if name not in reported)
    return tuple(dict.fromkeys((*fixed, *(name for name in node.features_active if name in reported))))


def reporting(node: Node, changeable: tuple[str, ...] | None, active: tuple[str, ...]) -> Node:
    """The node once its daemon has registered with these (see `RegisterNode`, but `active` is all that is)."""
    if changeable is not None:
        return replace(node, features_changeable=changeable, features_active=active)
    if node.features_changeable is None:
        return node
    return replace(node, features_changeable=None, features_active=node.config.features)
