"""Bodies of requests: JSON and YAML, and the options of a deletion."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from spritz_testing.kubernetes.errors import Object, bad_request
from spritz_testing.kubernetes.http import Incoming


class _YAML(yaml.SafeLoader):
    """YAML with times left as text, as Kubernetes reads it."""


_YAML.yaml_implicit_resolvers = {
    key: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def body_of(incoming: Incoming) -> Any:
    """The request's body, from JSON or YAML. Raises Refusal."""
    try:
        if "yaml" in incoming.headers.get("content-type", ""):
            return yaml.load(incoming.body, _YAML)
        return msgspec.json.decode(incoming.body)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise bad_request(
            "the object provided is unrecognized (must be of type): couldn't get version/kind; "
            f"json parse error: {error}"
        ) from error


def applied_body(incoming: Incoming) -> Any:
    """The body of a server-side apply, which is YAML unless it looks like JSON."""
    return yaml.load(incoming.body, _YAML) if incoming.body[:1] != b"{" else body_of(incoming)


def delete_options(incoming: Incoming) -> Object:
    """DeleteOptions: of the body, completed by the query."""
    options: Object = body_of(incoming) if incoming.body else {}
    query = incoming.query
    if "gracePeriodSeconds" in query:
        options.setdefault("gracePeriodSeconds", int(query["gracePeriodSeconds"]))
    if "propagationPolicy" in query:
        options.setdefault("propagationPolicy", query["propagationPolicy"])
    if query.get("dryRun") == "All":
        options.setdefault("dryRun", ["All"])
    return options
