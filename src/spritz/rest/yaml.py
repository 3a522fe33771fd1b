"""YAML in requests and answers. Source: slurmrestd(8): application/x-yaml."""

from __future__ import annotations

from typing import Any

import yaml
from msgspec import json

#: Longest body in YAML, in bytes: YAML is slow to parse.
YAML_BYTES_MAX = 1024 * 1024


class NotYaml(ValueError):
    """The text is not YAML, or uses features that no request needs."""


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """Refuses aliases: nested aliases can expand a short text beyond all memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise NotYaml("aliases are not accepted")
        return super().compose_node(parent, index)


def from_yaml(text: bytes) -> Any:
    """Parse YAML of at most YAML_BYTES_MAX bytes with a safe loader. Raises NotYaml."""
    if len(text) > YAML_BYTES_MAX:
        raise NotYaml(f"longer than {YAML_BYTES_MAX} bytes; JSON may be longer")
    try:
        return yaml.load(text, Loader=_Loader)  # a safe loader
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
        raise NotYaml("not YAML") from error


def to_yaml(text: bytes) -> bytes:
    """Convert an answer from JSON to YAML."""
    return yaml.safe_dump(json.decode(text), sort_keys=False, allow_unicode=True, explicit_start=True).encode()
