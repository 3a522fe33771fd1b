"""Counts: `--nodes=2-4`, `--ntasks=8`, `-B 2:8:1`.

Source: sbatch(1) --nodes, --extra-node-info; messages are those of `verify_node_count`, `parse_int` and
`get_resource_arg_range`.
"""

from __future__ import annotations

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.value import Value

#: largest signed 32-bit count
COUNT_MAX = 0x7FFFFFFF
#: most node counts in one request
_COUNTS_MAX = 65_536
_SUFFIXES = {"k": 1 << 10, "K": 1 << 10, "m": 1 << 20, "M": 1 << 20}


class CountError(NotationError):
    """The text is not a count, or the count is out of bounds. The message is Slurm's."""


def _number(text: str, maximum: int) -> int | None:
    """The value of `12`, `1k` or `1m`, blanks around it ignored; None for other text, or a value above `maximum`."""
    stripped = text.strip()
    scale = _SUFFIXES.get(stripped[-1:], 1)
    value = unsigned(stripped[:-1] if scale > 1 else stripped, maximum)
    return None if value is None or value * scale > maximum else value * scale


def parse_node_count(text: str) -> tuple[int, int]:
    """Least and most nodes: `2` -> (2, 2); `2-4` -> (2, 4); `-3` -> (1, 3); `1k` -> (1024, 1024); `0` -> (0, 0) as in
    Slurm.

    Raises CountError.
    """
    low_text, dash, high_text = text.partition("-")
    low = 0 if dash and not low_text else _number(low_text, COUNT_MAX)
    if low is None:
        raise CountError(f'"{shown(low_text if dash else text)}" is not a valid node count')
    if not dash:
        return low, low
    high = _number(high_text, COUNT_MAX) if high_text else -1
    if high is None:
        raise CountError(f'"{shown(high_text)}" is not a valid node count')
    low = low or 1
    if high < low:
        raise CountError(f"Maximum node count {high} is less than minimum node count {low}")
    return low, high


def parse_node_counts(text: str) -> tuple[int, ...]:
    """`1,2,4` -> (1, 2, 4); `2-9:3` -> (2, 5, 8); or a mix of both. Ascending, each once. Raises CountError."""
    counts: set[int] = set()
    for item in text.split(","):
        span, colon, step_text = item.partition(":")
        low, high = parse_node_count(span.removesuffix("-"))
        step = _number(step_text, COUNT_MAX) if colon else 1
        if not step or low < 1 or (colon and "-" not in span):
            raise CountError(f'"{shown(item)}" is not a valid node count')
        if (high - low) // step + len(counts) >= _COUNTS_MAX:
            raise CountError(f'"{shown(item)}" is more node counts than {_COUNTS_MAX}')
        counts.update(range(low, high + 1, step))
    return tuple(sorted(counts))


def parse_count(text: str, option: str, *, minimum: int = 1, maximum: int = COUNT_MAX, suffix: bool = False) -> int:
    """A whole number for `option` (`--ntasks`). `suffix`: K and M are allowed. Raises CountError in Slurm's words."""
    value = _number(text, COUNT_MAX) if suffix else unsigned(text.strip(), COUNT_MAX)
    if value is None and text.strip().isdigit() and text.isascii():
        raise CountError(f"Numeric argument ({shown(text.strip())}) to big for {option}.")
    if value is None or value < minimum:
        raise CountError(f'Invalid numeric value "{shown(text)}" for {option}.')
    if value > maximum:
        raise CountError(f"Numeric argument ({value}) to big for {option}.")
    return value


def parse_signed(text: str, option: str, *, minimum: int, maximum: int) -> int:
    """A whole number, maybe with a sign, for `option` (`--nice`). Raises CountError."""
    stripped = text.strip()
    value = unsigned(stripped[1:] if stripped[:1] in ("-", "+") else stripped, 1 << 62)
    if value is not None and stripped[0] == "-":
        value = -value
    if value is None or not minimum <= value <= maximum:
        raise CountError(f'Invalid numeric value "{shown(text)}" for {option}.')
    return value


class NodeShape(Value):
    """-B: least sockets, cores per socket and threads per core of a node; None: any."""

    __slots__ = ("cores", "sockets", "threads")

    def __init__(self, sockets: int | None = None, cores: int | None = None, threads: int | None = None) -> None:
        self.sockets = sockets
        self.cores = cores
        self.threads = threads


def parse_extra_node_info(text: str) -> NodeShape:
    """Parse `2`, `2:8`, `2:8:1`, `*:4`. Raises CountError."""
    fields = text.split(":", 3)
    if len(fields) > 3:
        raise CountError(f'Invalid numeric value "{shown(text)}" for -B.')
    values: list[int | None] = []
    for field, which in zip(fields, ("first", "second", "third"), strict=False):
        values.append(None if field in ("", "*") else parse_count(field, f"{which} arg of -B", suffix=True))
    return NodeShape(*values)
