from spritz.scheduling.view.profile import Floats
from spritz.scheduling.view.table import Bools, Ints

def ahead(
    times: Floats,
    counts: tuple[Ints, ...],
    node: int,
    now: list[int],
    events: list[tuple[float, int, tuple[int, ...]]],
    /,
) -> int: ...
def hold(
    times: Floats,
    counts: tuple[Ints, ...],
    node: int,
    start: float,
    end: float,
    amounts: tuple[int, ...],
    /,
) -> bool: ...
def lowest(
    times: Floats,
    counts: tuple[Ints, ...],
    nodes: Ints,
    start: float,
    until: float,
    columns: tuple[Ints | Bools, ...],
    /,
) -> None: ...
