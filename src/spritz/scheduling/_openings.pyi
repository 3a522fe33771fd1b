from spritz.scheduling.view.profile import Floats
from spritz.scheduling.view.table import Bools, Ints

def first(
    times: Floats,
    nodes: Ints,
    counts: tuple[Ints, ...],
    least: tuple[int, ...],
    since: float,
    seconds: float,
    out: Floats,
    /,
) -> None: ...
def after(
    times: Floats,
    nodes: Ints,
    counts: tuple[Ints, ...],
    least: tuple[int, ...],
    since: float,
    seconds: float,
    at: float,
    /,
) -> float: ...
def open_at(
    times: Floats,
    nodes: Ints,
    counts: tuple[Ints, ...],
    least: tuple[int, ...],
    since: float,
    seconds: float,
    at: float,
    out: Ints,
    /,
) -> int: ...
def choose(
    times: Floats,
    nodes: Ints,
    counts: tuple[Ints, ...],
    least: tuple[int, ...],
    since: float,
    seconds: float,
    until: float,
    up: Bools,
    tasks: tuple[int, ...],
    gpus: tuple[int, ...],
    target: tuple[int, ...],
    weights: Ints,
    busy: Ints | None,
    floor: int,
    tries: int,
    /,
) -> tuple[float, int, list[int] | None] | None: ...
