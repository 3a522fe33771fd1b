"""The faults of a configuration: each with its location and a hint.

Owns the form of the text (`file:line: message (hint)`); `typed`, `check` and `load` decide what is a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.config.grammar import Location

ERROR = "error"
WARNING = "warning"

#: How many faults are printed before further ones are only counted: a wrong file can hold a million.
PRINTED_MAX = 200


class Diagnostic(Struct, frozen=True, kw_only=True, gc=False):
    """One fault. `line` 0 means the file as a whole; `severity` is `ERROR` or `WARNING`."""

    severity: str
    message: str
    file: str = ""
    line: int = 0
    key: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        """`slurm.conf:12: Unknown key "SlurmctldProt" (did you mean SlurmctldPort?)`."""
        place = "" if not self.file else f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{hint}"

    def __str__(self) -> str:
        return self.text


class Diagnostics:
    """A growing list of faults, in the order found. `once` keeps a repeated warning from hiding the others."""

    __slots__ = ("_seen", "items")

    def __init__(self) -> None:
        self.items: list[Diagnostic] = []
        self._seen: set[str] = set()

    def error(self, place: Location | None, message: str, *, key: str = "", hint: str = "") -> None:
        """Add a fault that makes the configuration unusable."""
        self._add(ERROR, place, message, key, hint)

    def warning(self, place: Location | None, message: str, *, key: str = "", hint: str = "", once: str = "") -> None:
        """Add a warning: something works differently from what the file suggests.

        With `once`, only the first warning of that name is kept.
        """
        if once:
            if once in self._seen:
                return
            self._seen.add(once)
        self._add(WARNING, place, message, key, hint)

    def _add(self, severity: str, place: Location | None, message: str, key: str, hint: str) -> None:
        file, line = (place.file, place.line) if place else ("", 0)
        self.items.append(
            Diagnostic(severity=severity, message=message, file=file, line=line, key=key, hint=hint),
        )

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The faults that make the configuration unusable."""
        return tuple(item for item in self.items if item.severity == ERROR)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        return tuple(item for item in self.items if item.severity == WARNING)


class ConfigError(SpritzError):
    """The configuration cannot be used.

    `diagnostics` holds every fault, warnings included; the message is one line an error.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        diagnostics = tuple(diagnostics)
        errors = [item for item in _by_place(diagnostics) if item.severity == ERROR]
        super().__init__("\n".join(_texts(errors)), code="ESLURM_CONFIG", exit_code=1)
        self.diagnostics = diagnostics


def _by_place(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    items = list(diagnostics)
    files: dict[str, int] = {}
    for item in items:
        files.setdefault(item.file, len(files))
    return sorted(items, key=lambda item: (files[item.file], item.line))


def _texts(items: Sequence[Diagnostic]) -> list[str]:
    lines = [item.text for item in items[:PRINTED_MAX]]
    if len(items) > PRINTED_MAX:
        lines.append(f"… and {len(items) - PRINTED_MAX} more")
    return lines


def report(diagnostics: Iterable[Diagnostic], color: bool = False) -> str:
    """All faults, one line each, errors first and both in the order of the files, then a line that counts them; empty
    if there are none.
    """
    items = _by_place(diagnostics)
    if not items:
        return ""
    errors = [item for item in items if item.severity == ERROR]
    warnings = [item for item in items if item.severity == WARNING]
    lines: list[str] = []
    for label, shade, group in ((ERROR, "31", errors), (WARNING, "33", warnings)):
        prefix = f"\x1b[{shade}m{label}:\x1b[0m " if color else f"{label}: "
        lines += [prefix + text for text in _texts(group)]
    lines.append(f"{_count(len(errors), ERROR)}, {_count(len(warnings), WARNING)}")
    return "\n".join(lines) + "\n"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
