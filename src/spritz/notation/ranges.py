"""Sets of small numbers as text: array task ids `0-99:4%8`, CPU and device lists `0-3,8`, bit formats.

A set is a bit mask in a Python int, as everywhere in Spritz. Must not know arrays or nodes.

Source: sbatch(1) --array; squeue(1) SLURM_BITSTR_LEN; the printed forms are those of `bit_fmt` and of squeue's job ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: bound of all ids: the largest MaxArraySize that slurm.conf takes
ARRAY_SIZE_MAX = 4_000_001

#: length of a pending array's printed ids unless SLURM_BITSTR_LEN says otherwise
BITSTR_LEN = 64
_BITSTR_LEN_MAX = 4096

#: fewest ids that are printed as a range with a step
_STEP_COUNT_MIN = 6


class RangeError(NotationError):
    """The text is not a list of numbers and ranges, or a number is out of bounds."""


class ArraySpec(Value):
    """--array: `ids` as a bit mask; at most `throttle` of the tasks run at a time (0: no limit)."""

    __slots__ = ("ids", "throttle")

    def __init__(self, ids: int, throttle: int = 0) -> None:
        self.ids = ids
        self.throttle = throttle

    @property
    def task_ids(self) -> list[int]:
        return list(ids_of(self.ids))

    @property
    def count(self) -> int:
        return self.ids.bit_count()


def parse_array(text: str, size: int = ARRAY_SIZE_MAX) -> ArraySpec:
    """Parse `0-99:4%8`, `1,3,5-7`, `[1-3%2]` or `[1-3]%2`.

    Every id must be below `size` (MaxArraySize). Raises RangeError in Slurm's words.
    """
    plain = text.strip()
    if plain.startswith("["):
        inside, closing, behind = plain[1:].partition("]")
        plain = inside + behind if closing and not ("%" in inside and behind) else "["
    body, percent, limit = plain.partition("%")
    throttle = unsigned(limit.strip(), 0xFFFFFFFF) if percent else 0
    if throttle is None:
        raise RangeError(f"Invalid job array specification: {shown(text)} (%{shown(limit)} is no count)")
    try:
        ids = parse_ids(body, size)
    except RangeError as error:
        raise RangeError(f"Invalid job array specification: {shown(text)} ({error})") from error
    if not ids:
        raise RangeError(f"Invalid job array specification: {shown(text)} (no task ids)")
    return ArraySpec(ids=ids, throttle=throttle)


def parse_ids(text: str, size: int = ARRAY_SIZE_MAX) -> int:
    """Mask of `0-3,8,10-20:5`. Empty items are skipped; an empty text is the empty set.

    Ids must be below `size`. Raises RangeError.
    """
    mask = 0
    singles = bytearray()
    for raw in text.split(","):
        item = raw.strip()
        if not item:
            continue
        span, colon, step_text = item.partition(":")
        low_text, dash, high_text = span.partition("-")
        low = unsigned(low_text, size - 1)
        high = unsigned(high_text, size - 1) if dash else low
        step = unsigned(step_text, size) if colon else 1
        if low is None or high is None:
            raise RangeError(f"`{shown(item)}': not numbers below {size}")
        if high < low:
            raise RangeError(f"`{shown(item)}': the end is before the start")
        if not step or (colon and not dash):
            raise RangeError(f"`{shown(item)}': a step is a positive number after a range")
        if dash:
            mask |= _stepped(low, high, step)
        else:
            # One byte string for all single ids: a loop of `mask |= 1 << id` would take quadratic time.
            if len(singles) <= low >> 3:
                singles.extend(bytes((low >> 3) + 1 - len(singles)))
            singles[low >> 3] |= 1 << (low & 7)
    return mask | int.from_bytes(singles, "little")


def _stepped(low: int, high: int, step: int) -> int:
    """Mask of range(low, high + 1, step). Doubles the pattern: a loop over the ids would be quadratic."""
    if step == 1:
        return ((1 << (high - low + 1)) - 1) << low
    count = (high - low) // step + 1
    pattern, have = 1, 1
    while have < count:
        take = min(have, count - have)
        pattern |= (pattern & ((1 << (take * step)) - 1)) << (have * step)
        have += take
    return pattern << low


def mask_of(ids: Iterable[int]) -> int:
    """Mask of these numbers, which must be in 0 … `ARRAY_SIZE_MAX` * 8 - 1."""
    buffer = bytearray()
    for number in ids:
        if len(buffer) <= number >> 3:
            buffer.extend(bytes((number >> 3) + 1 - len(buffer)))
        buffer[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(buffer, "little")


def ids_of(mask: int) -> Iterator[int]:
    """Set bits in ascending order, in time linear in the mask's length."""
    bits = format(mask, "b")[::-1]
    position = bits.find("1")
    while position >= 0:
        yield position
        position = bits.find("1", position + 1)


def spans_of(mask: int) -> Iterator[tuple[int, int]]:
    """Runs of set bits as (first, last)."""
    bits = format(mask, "b")[::-1]
    start = bits.find("1")
    while start >= 0:
        end = bits.find("0", start)
        if end < 0:
            end = len(bits)
        yield start, end - 1
        start = bits.find("1", end)


def format_ids(ids: int | Iterable[int]) -> str:
    """`0-3,5` for a mask or numbers; "" for the empty set. Inverse of `parse_ids`."""
    mask = ids if isinstance(ids, int) else mask_of(ids)
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans_of(mask))


def format_array(ids: int | Iterable[int], throttle: int = 0, length: int = BITSTR_LEN) -> str:
    """Ids of pending array tasks as squeue prints them between brackets: `0-20:2`, `0-3,5%2`, cut with `...`.

    A regular step is recognised where Slurm does (six ids or more, over a span of more than ten). A form longer than
    `length` (SLURM_BITSTR_LEN) is cut; 0: never.
    """
    mask = ids if isinstance(ids, int) else mask_of(ids)
    text = _step_form(mask) or _cut(format_ids(mask), length)
    return f"{text}%{throttle}" if throttle else text


def _step_form(mask: int) -> str:
    last = mask.bit_length() - 1
    first = (mask & -mask).bit_length() - 1
    if mask <= 0 or last - first <= 10 or mask >> (first + 1) & 1 or mask.bit_count() < _STEP_COUNT_MIN:
        return ""
    higher = mask >> (first + 1)
    step = (higher & -higher).bit_length()
    if (last - first) % step or _stepped(first, last, step) != mask:
        return ""
    return f"{first}-{last}:{step}"


def _cut(text: str, length: int) -> str:
    """Cut `text` as Slurm's buffer of `length` bytes does: a longer text ends in three dots, wherever they fall."""
    if not length or len(text) <= length - 3:
        return text
    return text[: max(length - 4, 0)] + "..."


def bitstr_length(value: str | None) -> int:
    """Length that the variable SLURM_BITSTR_LEN asks for: the default if unset or negative; 0 (no cut) if
    not a number.
    """
    if value is None or value.strip().startswith("-"):
        return BITSTR_LEN
    return min(unsigned(value.strip(), 0xFFFFFFFF) or 0, _BITSTR_LEN_MAX)
