from spritz.scheduling.profile import Floats
from spritz.scheduling.table import Ints

def hold(
    times: Floats,
    counts: tuple[Ints, ...],
    node: int,
    start: float,
    end: float,
    amounts: tuple[int, ...],
    /,
) -> bool: ...
