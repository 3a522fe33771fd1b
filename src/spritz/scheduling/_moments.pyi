from spritz.scheduling.profile import Floats
from spritz.scheduling.table import Bools, Ints

def hold(
    times: Floats,
    counts: tuple[Ints, ...],
    node: int,
    start: float,
    end: float,
    amounts: tuple[int, ...],
    /,
) -> bool: ...
def soonest(
    free_at: tuple[Floats, Floats, Floats],
    need: tuple[int, int, int],
    whole: bool,
    cpus: Ints,
    up: Bools,
    nodes: Ints,
    now: float,
    chosen: Ints,
    at: Floats,
    /,
) -> int: ...
def take(
    free_at: tuple[Floats, Floats, Floats],
    need: tuple[int, int, int],
    whole: bool,
    cpus: Ints,
    up: Bools,
    nodes: Ints,
    now: float,
    until: Floats,
    /,
) -> None: ...
