"""Conversion of description texts to and from a JobSpec's plain values: hostlists, GRES, dependencies.

Writers raise FieldError with the reason. Source: slurm/slurm.h job_desc_msg_t.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spritz.notation import dependency, gres, hostlist
from spritz.notation.errors import NotationError
from spritz.plugins.answer import FieldError

Plain = dict[str, Any]


def gres_text(requests: Iterable[Mapping[str, Any]]) -> str | None:
    """GRES requests as `gres/gpu:a100:2,gres/shard:1`; None if there are none."""
    words = []
    for request in requests:
        kind = f":{request['type']}" if request.get("type") else ""
        words.append(f"gres/{request['name']}{kind}:{request.get('count', 1)}")
    return ",".join(words) or None


def gres_requests(text: str, name: str) -> list[Plain]:
    """Requests of a list of `gres/gpu:2`, `gres:gpu:2` or `gpu:2`, separated by commas."""
    try:
        parsed = gres.parse(text) if text else ()
    except NotationError as error:
        raise FieldError(f"{name}: {error}") from error
    return [{"name": request.name, "type": request.type or "", "count": request.count} for request in parsed]


def hosts_text(names: Iterable[str]) -> str | None:
    """Names as a hostlist, `n[1-4]`; None if there are none."""
    return hostlist.compress(tuple(names)) or None


def hosts(text: str, name: str) -> list[str]:
    """Names of a hostlist; "" has none."""
    try:
        return list(hostlist.expand(text)) if text else []
    except NotationError as error:
        raise FieldError(f"{name}: {error}") from error


def dependency_text(conditions: Iterable[Mapping[str, Any]], mode: str) -> str | None:
    """Conditions as `afterok:12,singleton`; None if there are none."""
    made = (
        dependency.Dependency(
            kind=condition["kind"],
            job_id=condition.get("job_id", 0),
            task_id=condition.get("task_id"),
            minutes=condition.get("minutes", 0),
        )
        for condition in conditions
    )
    return dependency.format(made, mode) or None


def dependencies(text: str) -> tuple[list[Plain], str]:
    """Conditions, and whether `all` or `any` of them must hold."""
    try:
        parsed, mode = dependency.parse(text)
    except NotationError as error:
        raise FieldError(f"dependency: {error}") from error
    plain = [
        {"kind": condition.kind, "job_id": condition.job_id, "task_id": condition.task_id, "minutes": condition.minutes}
        for condition in parsed
    ]
    return plain, mode


def per_gpu(text: str, name: str) -> int | None:
    """The number of `gres/gpu:4`; None for an empty text. Other GRES cannot be given per GPU here."""
    if not text:
        return None
    word = text.removeprefix("gres/").removeprefix("gres:")
    kind, colon, count = word.partition(":")
    if kind != "gpu" or not colon or not count.isdecimal():
        raise FieldError(f"{name}: {text} is not gres/gpu:COUNT")
    return int(count)
