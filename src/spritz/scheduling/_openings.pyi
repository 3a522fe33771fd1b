from spritz.scheduling.profile import Floats
from spritz.scheduling.table import Ints

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
