"""Conditions in the status of objects."""

from __future__ import annotations

from spritz_testing.kubernetes.errors import Object

#: Kinds with the common type of conditions, whose message is always there.
_ALWAYS_SAID = ("PodDisruptionBudget",)


def set_condition(obj: Object, kind: str, status: str, now: str, *, reason: str = "", message: str = "") -> None:
    """Set a condition of the object's status, in place; its transition time moves only with its status."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    condition: Object = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": now}
    if obj.get("kind") != "Pod":
        del condition["lastProbeTime"]
    if reason:
        condition["reason"] = reason
    if message or obj.get("kind") in _ALWAYS_SAID:
        condition["message"] = message
    for index, known in enumerate(conditions):
        if known["type"] == kind:
            if known["status"] == status:
                condition["lastTransitionTime"] = known.get("lastTransitionTime", now)
            conditions[index] = condition
            return
    conditions.append(condition)
