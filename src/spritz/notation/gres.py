"""Generic resources as requested and as shown: `gpu:a100:2,shard:4`, `gpu:a100:2(IDX:0-1)`.

Must not know which resources exist: callers check that.

Source: sbatch(1) --gres, --gpus; scontrol(1) show job -d, show node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.ranges import format_ids
from spritz.notation.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

#: as requests bound it
_COUNT_MAX = 1 << 53
_SCALES = {"K": 10, "M": 20, "G": 30, "T": 40, "P": 50}
_NAME_EXTRA = "_-.+"


class GresError(NotationError):
    """The text is not a generic resource request."""


class GresRequest(Value):
    """A request for `count` of resource `name`, of `type` ("": any)."""

    __slots__ = ("count", "name", "type")

    def __init__(self, name: str, type: str = "", count: int = 1) -> None:
        self.name = name
        self.type = type
        self.count = count


def _invalid(text: str, why: str) -> GresError:
    return GresError(f"Invalid generic resource (gres) specification: {shown(text)} ({why})")


def _count(text: str) -> int | None:
    """The value of `2` or `1k`; None if the text is no count."""
    scale = _SCALES.get(text[-1:].upper(), 0)
    return None if (number := unsigned(text[:-1] if scale else text, _COUNT_MAX >> scale)) is None else number << scale


def _check_word(word: str, item: str, what: str) -> str:
    if not word or not all(c.isalnum() or c in _NAME_EXTRA for c in word):
        raise _invalid(item, f"bad {what}")
    return word


def parse(text: str) -> tuple[GresRequest, ...]:
    """Requests of a list of `name[[:type]:count]`, `gres:name…` or `gres/name[:type]=count`; none for `none` and "".

    Counts of the same name and type add up. Counts of zero are kept: they cancel a default. Raises GresError.
    """
    if not text or text.lower() == "none":
        return ()
    return _merge(_parse_item(item) for item in text.split(","))


def _merge(requests: Iterable[GresRequest]) -> tuple[GresRequest, ...]:
    merged: dict[tuple[str, str], GresRequest] = {}
    for request in requests:
        key = (request.name, request.type)
        before = merged.get(key)
        merged[key] = GresRequest(*key, request.count + before.count) if before else request
        if merged[key].count > _COUNT_MAX:
            raise _invalid(request.name, "too many")
    return tuple(merged.values())


def _parse_item(item: str) -> GresRequest:
    body = item.strip()
    lowered = body[:5].lower()
    if lowered in ("gres:", "gres/"):
        body = body[5:]
    body, equals, value = body.partition("=")
    parts = body.split(":", 3)
    if equals:
        if lowered != "gres/":
            raise _invalid(item, "use name:count")
        parts.append(value)
    if len(parts) > 3:
        raise _invalid(item, "too many fields")
    name = _check_word(parts[0], item, "name")
    if len(parts) == 1:
        return GresRequest(name)
    count = _count(parts[-1])
    if len(parts) == 3:
        if count is None:
            raise _invalid(item, "bad count")
        return GresRequest(name, _check_word(parts[1], item, "type"), count)
    if count is not None:
        return GresRequest(name, "", count)
    if equals or not any(map(str.isalpha, parts[1])):
        raise _invalid(item, "bad count")
    return GresRequest(name, _check_word(parts[1], item, "type"))


def parse_gpus(text: str) -> tuple[GresRequest, ...]:
    """--gpus and --gpus-per-*: comma list of `[type:]count`, as requests for `gpu`. Raises GresError."""
    requests: list[GresRequest] = []
    for raw in text.split(","):
        item = raw.strip()
        kind, colon, count_text = item.rpartition(":")
        count = _count(count_text)
        if count is None and not colon and any(map(str.isalpha, item)):
            kind, count = item, 1
        if count is None or ":" in kind or (colon and not kind):
            raise _invalid(raw, "use [type:]count")
        requests.append(GresRequest("gpu", _check_word(kind, raw, "type") if kind else "", count))
    return _merge(requests)


def format_indexes(name: str, type: str, count: int, mask: int) -> str:
    """`gpu:a100:2(IDX:0-1)`; with an empty set `gpu:0(IDX:N/A)`. As `scontrol -d show job` and node's GresUsed."""
    return f"{_words(name, type)}:{count}(IDX:{format_ids(mask) if mask else 'N/A'})"


def format_capacity(name: str, type: str, count: int, sockets: str = "") -> str:
    """`gpu:a100:8(S:0-1)`, as sinfo and `scontrol show node` list what a node has."""
    return f"{_words(name, type)}:{count}" + (f"(S:{sockets})" if sockets else "")


def _words(name: str, type: str) -> str:
    return f"{name}:{type}" if type else name
