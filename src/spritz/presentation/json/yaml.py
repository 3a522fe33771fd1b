"""Writes YAML for `--yaml`: JSON values as blocks of lines; text is quoted as in JSON, which is valid YAML.

Source: YAML 1.2, chapters 7 and 8; squeue(1) --yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json

if TYPE_CHECKING:
    from typing import Any

#: words that would not be text without quotes
_OTHER_MEANING = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "infinity"))
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+")


def document(value: Any) -> str:
    """A document for a value from a JSON decoder."""
    lines = ["%YAML 1.2", "---"]
    _block(value, 0, lines)
    return "\n".join(lines) + "\n"


def _block(value: Any, indent: int, lines: list[str]) -> None:
    blanks = " " * indent
    if isinstance(value, dict):
        for key, item in value.items():
            _entry(f"{blanks}{_scalar(key)}:", item, indent, lines)
    else:
        for item in value:
            if isinstance(item, dict) and item:
                first = len(lines)
                _block(item, indent + 2, lines)
                lines[first] = f"{blanks}- {lines[first][indent + 2 :]}"
            else:
                _entry(f"{blanks}-", item, indent, lines)


def _entry(head: str, item: Any, indent: int, lines: list[str]) -> None:
    if isinstance(item, dict | list):
        if item:
            lines.append(head)
            _block(item, indent + 2, lines)
        else:
            lines.append(f"{head} {'{}' if isinstance(item, dict) else '[]'}")
    else:
        lines.append(f"{head} {_scalar(item)}")


def _scalar(value: Any) -> str:
    if (
        isinstance(value, str)
        and value[:1].isalpha()
        and _PLAIN.issuperset(value)
        and value.lower() not in _OTHER_MEANING
    ):
        return value

    return json.encode(value).decode("utf-8")
