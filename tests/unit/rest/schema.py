"""The published schemas as a validator takes them."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from spritz.presentation.json.documents import document


@cache
def _components(version: str) -> Any:
    """Closed objects (what no document names must not be there), and without what a JSON schema cannot say."""
    found = copy.deepcopy(document(version)["components"])
    for schema in found["schemas"].values():
        _mend(schema)
    return found


def _mend(schema: dict[str, Any]) -> None:
    # The documents write paths in `required` ("nodes/count"), which are no names of properties.
    if isinstance(schema.get("required"), list):
        schema["required"] = [name for name in schema["required"] if "/" not in name]
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict):
        schema["additionalProperties"] = False
        for inner in properties.values():
            _mend(inner)
    if isinstance(schema.get("items"), dict):
        _mend(schema["items"])


def schema_of(version: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with what it refers to."""
    return {**schema, "components": _components(version)}
