from spritz.scheduling.view.profile import Floats
from spritz.scheduling.view.table import Bools, Ints

def lasting(times: Floats, counts: Ints, now: float, free_at: Floats, /) -> None: ...
def pool(
    free_at: tuple[Floats, Floats, Floats],
    need: tuple[int, int, int],
    whole: bool,
    cpus: Ints,
    up: Bools,
    nodes: Ints,
    now: float,
    chosen: Ints,
    /,
) -> tuple[int, float]: ...
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
) -> None: ...
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
