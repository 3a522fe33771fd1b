"""Small values of the data_parser form. Source: Slurm's OpenAPI specification v0.0.43."""

from __future__ import annotations

from spritz.model.ids import INFINITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]


def number(value: float | None) -> Json:
    """A number that may be unset (None) or without bound (INFINITE)."""
    if value is None:
        return {"set": False, "infinite": False, "number": 0}
    if value >= INFINITE:
        return {"set": True, "infinite": True, "number": 0}
    return {"set": True, "infinite": False, "number": value}


def moment(at: float) -> Json:
    """A time; 0 is set, as Slurm has it."""
    return number(int(at))


def exit_code(status: int) -> Json:
    """A wait status in words."""
    from spritz.notation.signals import signal_name

    code, signal = status >> 8, status & 0x7F
    words = ["SIGNALED"] if signal else ["ERROR"] if code else ["SUCCESS"]
    return {
        "status": words,
        "return_code": number(code),
        "signal": {"id": number(signal or None), "name": f"{signal_name(signal)}" if signal else ""},
    }
