"""Events of Kubernetes, as pods, machines and NodeSets get them.

Source: Kubernetes, Event v1.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping

import msgspec

_MESSAGE_MAX = 1024


def event_request(
    about: Mapping[str, str], namespace: str, reason: str, message: str, *, of: object, component: str, warning: bool
) -> tuple[str, bytes]:
    """Path and body of the request that creates the event.

    `about`: apiVersion, kind, name and uid of the object; `namespace`: the object's, "default" for an object of the
    cluster. The event's name follows from `of`, so the same event is made only once.
    """
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251  # for readers
    digest = hashlib.sha256(repr(of).encode()).hexdigest()[:16]
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name'][:200]}.{digest}", "namespace": namespace},
        "involvedObject": about,
        "reason": reason,
        "message": message[:_MESSAGE_MAX],
        "type": "Warning" if warning else "Normal",
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    return f"api/v1/namespaces/{namespace}/events", msgspec.json.encode(body)
