"""What a run has touched: kinds of messages that were received, and `await`s at which a process was killed.

Both are counted in `World.counts`, as "message slurmctld SubmitJob" and "await controller/writer/loop.py:120"; and
"accepts slurmctld SubmitJob" says that a daemon's table has this kind.
"""

from __future__ import annotations

import ast
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any
from zlib import crc32

import spritz
from spritz.wire import envelope, requests
from spritz_testing.daemons.system import rates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from msgspec import Struct

    from spritz_testing.daemons.system.world import Process

#: Packages whose await points are counted.
PACKAGES = ("accounting", "client", "controller", "node")

_ROOT = Path(spritz.__file__).parent

_DAEMONS = frozenset({"slurmctld", "slurmd", "slurmdbd"})
#: Messages that are the same for each node; and Ping, the first of every connection to a controller that may stand by:
#: `rates.CONNECTIONS_MAX` counts these for each controller.
_ALIKE = frozenset({"PingNode", "ReloadNode", "StopDaemon", "Ping"})


# Messages

original_request_decoder = requests.RequestDecoder
original_decode_envelope = envelope.decode_envelope
original_encode_request = envelope.encode_request


def decode_envelope(payload: bytes) -> envelope.Envelope:
    """As `wire.envelope.decode_envelope`; requests are counted by the daemon that received them, and by their kind."""
    from spritz_testing.daemons.system import threads

    decoded = original_decode_envelope(payload)
    if type(decoded) is envelope.Request:
        world = threads.world()
        process = world.current
        world.count(f"message {process.name if process else 'simulation'} {decoded.kind}")
    return decoded


def encode_request(request_id: int, body: Struct, *, version: int = 1) -> bytes:
    """As `wire.envelope.encode_request`; what is sent too often is noticed, and a daemon that sends the same again and
    again. Commands do that while they look for a controller.

    Counted where it is sent: requests pile up while their receiver is stopped, also those of commands that gave up.
    """
    from spritz_testing.daemons.system import threads

    frame = original_encode_request(request_id, body, version=version)
    world, kind = threads.world(), type(body).__name__
    if request_id:  # what wants no answer may follow each event
        most = rates.PINGS_MAX if kind in rates.OFTEN else rates.REQUESTS_MAX
        rates.note(world, f"{kind} is sent", most)
    if request_id and kind not in _ALIKE and world.current is not None and world.current.name in _DAEMONS:
        contents = crc32(frame[frame.find(kind.encode()) :])
        rates.note(world, f"{world.current} sends the same {kind} ({contents:x})", rates.SAME_MAX)
    return frame


class RequestDecoder(requests.RequestDecoder):
    """As `wire.requests.RequestDecoder`; what a daemon's table accepts is noted, for a comparison with what came."""

    __slots__ = ()

    def __init__(self, types: Iterable[type[Struct]]) -> None:
        from spritz_testing.daemons.system import threads

        super().__init__(types)
        process = threads.world().current
        for kind in self.kinds:
            threads.world().counts[f"accepts {process.name if process else 'simulation'} {kind}"] = 1


def never_came(counts: dict[str, int]) -> list[str]:
    """Kinds of messages that a daemon's table has, and that no daemon of its kind received: "slurmctld SubmitJob"."""
    came = kinds(counts, "message")
    return sorted(name for name in kinds(counts, "accepts") if name not in came)


# Await points


def note_awaits(process: Process) -> None:
    """The process is about to be killed: count the places at which its tasks wait."""
    for place in awaits(process):
        process.world.count(f"await {place}")


def awaits(process: Process) -> Iterator[str]:
    """Where its tasks wait: `file:line` of each await on the way, in the order of the tasks."""
    for task in process.loop.tasks():
        yield from _places(task.get_coro())


def _places(waiting: Any) -> Iterator[str]:
    """`file:line` of a suspended coroutine and of those that it awaits, in the packages that count."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
        if frame is not None and (place := _place(frame.f_code, frame.f_lineno)):
            yield place
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)


_packages: dict[CodeType, str] = {}


def _place(code: CodeType, line: int) -> str:
    """ "controller/writer/loop.py:120", or "" for code of other packages."""
    name = _packages.get(code)
    if name is None:
        path = Path(code.co_filename)
        inside = path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in PACKAGES
        name = _packages[code] = str(path.relative_to(_ROOT)) if inside else ""
    return f"{name}:{line}" if name else ""


def await_points() -> dict[str, list[tuple[int, int]]]:
    """Every `await`, `async for` and `async with` of the packages: file -> (first line, last line)."""
    points = {}
    for package in PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            spans = list(_spans(ast.parse(path.read_text())))
            if spans:
                points[str(path.relative_to(_ROOT))] = spans
    return points


def _spans(tree: ast.AST) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Await):
            yield node.lineno, node.end_lineno or node.lineno
        elif isinstance(node, ast.AsyncFor | ast.AsyncWith):
            yield node.lineno, node.body[0].lineno - 1


def awaits_hit(counts: dict[str, int]) -> tuple[int, int]:
    """How many await points a process was killed at, and how many there are."""
    points = await_points()
    hit = set()
    for name in counts:
        if name.startswith("await "):
            path, _, line = name.removeprefix("await ").rpartition(":")
            around = [span for span in points.get(path, ()) if span[0] <= int(line) <= span[1]]
            if around:
                hit.add((path, max(around)))
    return len(hit), sum(len(set(spans)) for spans in points.values())


def kinds(counts: dict[str, int], prefix: str) -> dict[str, int]:
    """Those counts whose names begin with a word: "fault", "message", without it, the largest first."""
    found = {name.removeprefix(f"{prefix} "): count for name, count in counts.items() if name.startswith(f"{prefix} ")}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
