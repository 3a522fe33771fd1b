"""Tables: what `kubectl get` prints.

Source: Kubernetes API concepts, "Receiving resources as Tables"; `pkg/printers/internalversion` for the columns.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any, Final

from spritz_testing.kubernetes.errors import Object
from spritz_testing.kubernetes.kinds import Kind


def wanted(accept: str) -> bool:
    return "as=Table" in accept


def age(timestamp: str | None, now: float) -> str:
    """A short duration since then, as kubectl has it."""
    if not timestamp:
        return "<unknown>"
    then = datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
    seconds = int(now - then)
    if seconds < -1:
        return "<invalid>"  # as a server has it: columns of dates are ages
    seconds = max(0, seconds)
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def _pod(obj: Object) -> list[Any]:
    status = obj.get("status") or {}
    containers = status.get("containerStatuses") or []
    reason = status.get("reason") or status.get("phase") or "Unknown"
    for container in containers:
        state = container.get("state") or {}
        for part in ("waiting", "terminated"):
            if (state.get(part) or {}).get("reason"):
                reason = state[part]["reason"]
    if obj["metadata"].get("deletionTimestamp"):
        reason = "Terminating"
    elif obj["spec"].get("schedulingGates") and not obj["spec"].get("nodeName"):
        reason = "SchedulingGated"
    ready = sum(bool(container.get("ready")) for container in containers)
    restarts = sum(container.get("restartCount", 0) for container in containers)
    return [f"{ready}/{len(obj['spec']['containers'])}", reason, str(restarts)]


def _node(obj: Object) -> list[Any]:
    conditions = {
        condition["type"]: condition["status"] for condition in (obj.get("status") or {}).get("conditions") or ()
    }
    ready = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    if conditions.get("Ready") == "Unknown":
        ready = "NotReady"
    if (obj.get("spec") or {}).get("unschedulable"):
        ready += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(label[len(prefix) :] for label in obj["metadata"].get("labels") or {} if label.startswith(prefix))
    version = ((obj.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", "")
    return [ready, ",".join(roles) or "<none>", version]


def _counts(obj: Object) -> tuple[int, int]:
    return (obj.get("status") or {}).get("readyReplicas", 0), obj["spec"].get("replicas", 0)


def _deployment(obj: Object) -> list[Any]:
    status = obj.get("status") or {}
    ready, replicas = _counts(obj)
    return [f"{ready}/{replicas}", status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]


def _job(obj: Object) -> list[Any]:
    status = obj.get("status") or {}
    conditions = {condition["type"] for condition in status.get("conditions") or () if condition["status"] == "True"}
    state = (
        "Complete"
        if "Complete" in conditions
        else "Failed"
        if "Failed" in conditions
        else "Suspended"
        if obj["spec"].get("suspend")
        else "Running"
    )
    return [state, f"{status.get('succeeded', 0)}/{obj['spec'].get('completions') or 1}"]


#: columns between NAME and AGE
_COLUMNS: Final[dict[str, tuple[tuple[str, ...], Callable[[Object], list[Any]]]]] = {
    "pods": (("Ready", "Status", "Restarts"), _pod),
    "nodes": (("Status", "Roles", "Version"), _node),
    "deployments": (("Ready", "Up-to-date", "Available"), _deployment),
    "replicasets": (
        ("Desired", "Current", "Ready"),
        lambda obj: [
            obj["spec"].get("replicas", 0),
            obj["status"].get("replicas", 0),
            obj["status"].get("readyReplicas", 0),
        ],
    ),
    "statefulsets": (("Ready",), lambda obj: [f"{_counts(obj)[0]}/{_counts(obj)[1]}"]),
    "jobs": (("Status", "Completions"), _job),
    "namespaces": (("Status",), lambda obj: [(obj.get("status") or {}).get("phase", "")]),
    "leases": (("Holder",), lambda obj: [(obj.get("spec") or {}).get("holderIdentity") or ""]),
    "services": (
        ("Type", "Cluster-IP", "Port(s)"),
        lambda obj: [
            obj["spec"].get("type"),
            obj["spec"].get("clusterIP", "<none>"),
            ",".join(f"{port['port']}/{port['protocol']}" for port in obj["spec"].get("ports") or ()) or "<none>",
        ],
    ),
    "configmaps": (("Data",), lambda obj: [len(obj.get("data") or {}) + len(obj.get("binaryData") or {})]),
    "secrets": (("Type", "Data"), lambda obj: [obj.get("type", ""), len(obj.get("data") or {})]),
    "poddisruptionbudgets": (
        ("Min Available", "Max Unavailable", "Allowed Disruptions"),
        lambda obj: [
            str(obj["spec"].get("minAvailable", "N/A")),
            str(obj["spec"].get("maxUnavailable", "N/A")),
            (obj.get("status") or {}).get("disruptionsAllowed", 0),
        ],
    ),
}


#: further columns of `kubectl get -o wide`
_WIDE: Final[dict[str, tuple[tuple[str, ...], Callable[[Object], list[Any]]]]] = {
    "pods": (
        ("IP", "Node"),
        lambda obj: [(obj.get("status") or {}).get("podIP") or "<none>", obj["spec"].get("nodeName") or "<none>"],
    ),
}


def of(kind: Kind, objects: list[Object], version: str, now: float, token: str = "") -> Object:
    """The table for `objects`; `token` (`continue`) is set if the list was cut."""
    if kind.custom and kind.columns:
        names = ["Name", *(column["name"] for column in kind.columns)]
        types = ["string", *(column["type"] for column in kind.columns)]
        priorities = [0, *(column.get("priority", 0) for column in kind.columns)]

        def cells(obj: Object) -> list[Any]:
            return [obj["metadata"]["name"], *(_custom_cell(obj, column, now) for column in kind.columns)]

    elif kind.plural == "events":
        names, types, priorities = ["Last Seen", "Type", "Reason", "Object", "Message"], ["string"] * 5, [0] * 5

        def cells(obj: Object) -> list[Any]:
            about = obj.get("involvedObject") or {}
            seen = obj.get("lastTimestamp") or obj.get("eventTime") or obj["metadata"].get("creationTimestamp")
            return [
                age(re.sub(r"\.\d+", "", seen or ""), now),
                obj.get("type"),
                obj.get("reason"),
                f"{about.get('kind', '').lower()}/{about.get('name', '')}",
                (obj.get("message") or "").strip(),
            ]

    else:
        titles, values = _COLUMNS.get(kind.plural, ((), lambda _obj: []))
        wide_titles, wide_values = _WIDE.get(kind.plural, ((), lambda _obj: []))
        names = ["Name", *titles, "Age", *wide_titles]
        types, priorities = ["string"] * len(names), [0] * (len(names) - len(wide_titles)) + [1] * len(wide_titles)

        def cells(obj: Object) -> list[Any]:
            created = age(obj["metadata"].get("creationTimestamp"), now)
            return [obj["metadata"]["name"], *values(obj), created, *wide_values(obj)]

    rows = [
        {
            "cells": cells(obj),
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]},
        }
        for obj in objects
    ]
    columns = [
        {
            "name": name,
            "type": of_type,
            "format": "name" if name == "Name" else "",
            "description": name,
            "priority": priority,
        }
        for name, of_type, priority in zip(names, types, priorities, strict=True)
    ]
    metadata = {"resourceVersion": version} | ({"continue": token} if token else {})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    }


_FILTER: Final = re.compile(r'\[\?\(@\.([\w]+)\s*==\s*["\']([^"\']*)["\']\)\]')


def _custom_cell(obj: Object, column: Object, now: float) -> Any:
    value = at_path(obj, column["jsonPath"])
    if column["type"] == "date":
        return age(value, now) if value else "<unknown>"
    if isinstance(value, (dict, list)):
        return str(value)
    return value


def at_path(obj: Any, path: str) -> Any:
    """The value at a simple JSONPath: fields, indexes, `[?(@.type=="Ready")]`; None if there is none."""
    for part in re.findall(r"\[\?\([^\]]*\)\]|\[\d+\]|\[\*\]|\[\'[^\']+\'\]|(?:\\\.|[^.\[])+", path):
        if obj is None:
            return None
        match = _FILTER.fullmatch(part)
        if match is not None:
            field, value = match.groups()
            obj = (
                next((member for member in obj if str(member.get(field)) == value), None)
                if isinstance(obj, list)
                else None
            )
        elif part == "[*]":
            obj = obj[0] if isinstance(obj, list) and obj else None
        elif re.fullmatch(r"\[\d+\]", part):
            index = int(part[1:-1])
            obj = obj[index] if isinstance(obj, list) and index < len(obj) else None
        else:
            name = part.strip("[]'").replace("\\.", ".")
            obj = obj.get(name) if isinstance(obj, dict) else None
    return obj
