"""Find the operation of a path and a method. As in Slurm, doubled and trailing slashes are ignored."""

from __future__ import annotations

from urllib.parse import unquote

from msgspec import Struct, field

from spritz.presentation.json.documents import Operation


class _Place(Struct):
    """A node in the tree of path segments: its successors, and the operations that end here."""

    following: dict[str, _Place] = field(default_factory=dict)
    parameter: str = ""
    any: _Place | None = None
    methods: dict[str, Operation] = field(default_factory=dict)


class Router:
    """A tree of path segments; a segment such as `{job_id}` matches any text and becomes a parameter."""

    def __init__(self, operations: list[Operation]) -> None:
        self._root = _Place()
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        place = self._root
        for segment in segments_of(operation.path):
            if segment.startswith("{"):
                place.parameter = segment[1:-1]
                place.any = place.any or _Place()
                place = place.any
            else:
                place = place.following.setdefault(segment, _Place())
        place.methods[operation.method] = operation

    def find(self, path: str) -> tuple[dict[str, Operation], dict[str, str]] | None:
        """(operations by method, parameters in the path); None for an unknown path."""
        place, parameters = self._root, {}
        for quoted in segments_of(path):
            segment = unquote(quoted, errors="surrogateescape")
            following = place.following.get(segment)
            if following is None:
                if place.any is None or segment == ".." or "\0" in segment:
                    return None
                parameters[place.parameter] = segment
                following = place.any
            place = following
        return (place.methods, parameters) if place.methods else None


def segments_of(path: str) -> list[str]:
    """The segments of a path, without empty ones."""
    return [word for word in path.split("/") if word and word != "."]
