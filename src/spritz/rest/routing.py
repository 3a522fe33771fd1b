"""Which operation a path and a method mean. As in Slurm, slashes that are doubled or trail make no difference."""

from __future__ import annotations

from urllib.parse import unquote

from msgspec import Struct, field

from spritz.presentation.json.documents import Operation


class _Place(Struct):
    """A segment of paths: what may follow it, and the operations that end with it."""

    following: dict[str, _Place] = field(default_factory=dict)
    parameter: str = ""
    any: _Place | None = None
    methods: dict[str, Operation] = field(default_factory=dict)


class Router:
    """Finds operations."""

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
        """Operations by method, and the parameters of the path; None for a path that there is not."""
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
    """The words between slashes."""
    return [word for word in path.split("/") if word and word != "."]
