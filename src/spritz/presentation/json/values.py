"""Small values of the data_parser form. Source: Slurm's OpenAPI specification v0.0.43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.presentation.json.pretty import Shared

if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]


_UNSET: Json = Shared({"set": False, "infinite": False, "number": 0})
_INFINITE: Json = Shared({"set": True, "infinite": True, "number": 0})
_numbers: dict[tuple[type, float], Json] = {}
_NUMBERS_MAX = 4096


def number(value: float | None) -> Json:
    """A number that may be unset (None) or unlimited (INFINITE). The dict is shared: it must not be changed."""
    if value is None:
        return _UNSET
    known = _numbers.get((type(value), value))
    if known is not None:
        return known
    if value >= INFINITE:
        return _INFINITE
    if len(_numbers) >= _NUMBERS_MAX:
        _numbers.clear()
    shared = _numbers[type(value), value] = Shared({"set": True, "infinite": False, "number": value})
    return shared


def moment(at: float) -> Json:
    """A time; 0 counts as set, as in Slurm."""
    return number(int(at))


def exit_code(status: int) -> Json:
    """A wait status as an object of code, signal and status."""
    if not status:
        return _SUCCESS
    from spritz.notation.signals import signal_name

    code, signal = status >> 8, status & 0x7F
    words = ["SIGNALED"] if signal else ["ERROR"] if code else ["SUCCESS"]
    return Shared(
        {
            "status": words,
            "return_code": number(code),
            "signal": {"id": number(signal or None), "name": f"{signal_name(signal)}" if signal else ""},
        }
    )


_SUCCESS: Json = Shared({"status": ["SUCCESS"], "return_code": number(0), "signal": {"id": number(None), "name": ""}})
