import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

def lanes_free_at(times: Floats, counts: Ints, now: float, free_at: Floats, /) -> None: ...
def lanes_pool(
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
def lanes_soonest(
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
def lanes_take(
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
def timeline_put(
    times: Floats,
    counts: tuple[Ints, ...],
    node: int,
    now: list[int],
    events: list[tuple[float, int, tuple[int, ...]]],
    /,
) -> int: ...
def timeline_hold(
    times: Floats,
    counts: tuple[Ints, ...],
    node: int,
    start: float,
    end: float,
    amounts: tuple[int, ...],
    /,
) -> bool: ...
def timeline_lowest(
    times: Floats,
    counts: tuple[Ints, ...],
    nodes: Ints,
    start: float,
    until: float,
    columns: tuple[Ints | Bools, ...],
    /,
) -> None: ...
def openings_first(
    times: Floats,
    nodes: Ints,
    counts: tuple[Ints, ...],
    least: tuple[int, ...],
    since: float,
    seconds: float,
    out: Floats,
    /,
) -> None: ...
def openings_after(
    times: Floats,
    nodes: Ints,
    counts: tuple[Ints, ...],
    least: tuple[int, ...],
    since: float,
    seconds: float,
    at: float,
    /,
) -> float: ...
def openings_at(
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
def choose_nodes(
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
