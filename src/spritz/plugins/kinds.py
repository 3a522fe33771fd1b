"""Kinds of description fields: texts, numbers, lists, GRES, times, and fields that are never given.

Numbers that were not given are NO_VAL of their width, as in job_desc_msg_t. Plain NO_VAL clears a number of any width,
because scripts write that. Source: slurm/slurm.h.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from spritz.model.ids import NO_VAL
from spritz.notation.octets import plain
from spritz.plugins import notations
from spritz.plugins.answer import FieldError
from spritz.plugins.numbers import NO_VAL16, NO_VAL64


class Described(Protocol):
    """A request, as its fields read and write it (`description.Description`)."""

    script: bytes
    #: what a plugin wrote to min_cpus
    min_cpus: int | None

    @property
    def fields(self) -> dict[str, Any]: ...

    @property
    def facts(self) -> Mapping[str, Any]: ...

    @property
    def modify(self) -> bool: ...

    def put(self, field: str, value: Any) -> None: ...


Read = Callable[[Described], Any]
Write = Callable[[Described, str, Any], None]

#: splits the text of a list (name, text) into its items
Split = Callable[[str, str], list[str]]


def text_of(name: str, value: Any) -> str:
    """`value` as text; numbers convert, as in Lua. Raises FieldError for other types."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        kind = "nil" if value is None else type(value).__name__
        raise FieldError(f"{name}: string expected, got {kind}")
    return plain(str(value))


def number_of(name: str, value: Any) -> int:
    """`value` as a whole number; text of one converts. Raises FieldError."""
    if isinstance(value, str):
        try:
            value = float(value) if "." in value else int(value)
        except ValueError:
            pass
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        kind = "nil" if value is None else "string" if isinstance(value, str) else type(value).__name__
        raise FieldError(f"{name}: number expected, got {kind}")
    if value != value or abs(value) > 2.0**65:
        raise FieldError(f"{name}: {value} is out of range")
    return int(value)


def given(name: str, value: Any, unset: int = NO_VAL) -> int | None:
    """The number, or None for one that stands for "not given". Raises FieldError."""
    number = number_of(name, value)
    return None if number in (unset, NO_VAL, NO_VAL64) else number


class DescriptionField:
    """How plugins read and write a field. Without `write` it is read-only, for the reason `refused`."""

    __slots__ = ("_read", "_write", "refused")

    def __init__(self, read: Read, write: Write | None = None, refused: str = "plugins cannot change it") -> None:
        self._read = read
        self._write = write
        self.refused = refused

    @property
    def writable(self) -> bool:
        """Whether plugins may write the field."""
        return self._write is not None

    def read(self, description: Described) -> Any:
        return self._read(description)

    def write(self, description: Described, name: str, value: Any) -> None:
        """Set the field. Raises FieldError for a bad value, and for another value of a field that cannot be set."""
        if self._write is not None:
            self._write(description, name, value)
        elif value != self._read(description):
            raise FieldError(f"{name}: {self.refused}")


def text_field(field: str) -> DescriptionField:
    def write(d: Described, name: str, value: Any) -> None:
        text = text_of(name, value)
        d.put(field, text if text or d.modify else None)

    return DescriptionField(lambda d: d.fields.get(field) or None, write)


def number_field(field: str, unset: int = NO_VAL, low: int = 0) -> DescriptionField:
    def read(d: Described) -> int:
        value = d.fields.get(field)
        return unset if value is None else int(value)

    def write(d: Described, name: str, value: Any) -> None:
        number = given(name, value, unset)
        if number is not None and number < low:
            raise FieldError(f"{name}: {number} is below {low}")
        d.put(field, number)

    return DescriptionField(read, write)


def list_field(
    field: str, split: Callable[[str, str], list[str]], join: Callable[[Any], str | None]
) -> DescriptionField:
    def write(d: Described, name: str, value: Any) -> None:
        d.put(field, split(text_of(name, value), name))

    return DescriptionField(lambda d: join(d.fields.get(field) or ()), write)


def requests(fields: tuple[str, ...]) -> DescriptionField:
    """GRES of several JobSpec fields, read as one text. Writing sets the first of them and clears the others."""

    def read(d: Described) -> str | None:
        return notations.gres_text([request for field in fields for request in d.fields.get(field) or ()])

    def write(d: Described, name: str, value: Any) -> None:
        d.put(fields[0], notations.gres_requests(text_of(name, value), name))
        for other in fields[1:]:
            if d.fields.get(other):
                d.put(other, [] if d.modify else None)

    return DescriptionField(read, write)


def per_gpu(field: str, others: tuple[str, ...] = ()) -> DescriptionField:
    def read(d: Described) -> str | None:
        value = d.fields.get(field)
        return None if value is None else f"gres/gpu:{value}"

    def write(d: Described, name: str, value: Any) -> None:
        number = notations.per_gpu(text_of(name, value), name)
        d.put(field, number)
        clear(d, others if number is not None else ())

    return DescriptionField(read, write)


def clear(d: Described, fields: tuple[str, ...]) -> None:
    for field in fields:
        if d.modify or d.fields.get(field) is not None:
            d.put(field, None)


def absent(unset: Any, why: str) -> DescriptionField:
    """A name of Slurm's that Spritz does not support: it reads as `unset`, and writing it is refused."""
    return DescriptionField(lambda d: unset, None, why)


def fact(name: str, unset: Any = None) -> DescriptionField:
    return DescriptionField(lambda d: d.facts.get(name, unset))


def flag(field: str) -> DescriptionField:
    """A field that is yes, no or not given."""

    def write(d: Described, name: str, value: Any) -> None:
        number = given(name, int(value) if isinstance(value, bool) else value, NO_VAL16)
        d.put(field, None if number is None else bool(number))

    return DescriptionField(lambda d: NO_VAL16 if d.fields.get(field) is None else int(d.fields[field]), write)


def moment(field: str) -> DescriptionField:
    """A time in epoch seconds; 0 for none."""

    def write(d: Described, name: str, value: Any) -> None:
        number = given(name, value) or 0
        d.put(field, float(number) if number > 0 else (0.0 if d.modify else None))

    return DescriptionField(lambda d: int(d.fields.get(field) or 0), write)
