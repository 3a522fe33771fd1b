"""Texts of sacct's values: times, CPU times, exit codes. Source: sacct(1); forms as 22.05 prints them."""

from __future__ import annotations

from spritz.notation.duration import format_duration


def cpu_time(seconds: float) -> str:
    """`00:01.234` below an hour, then `01:02:03`, `1-02:03:04`."""
    whole = int(seconds)
    if whole >= 3600:
        return format_duration(whole)
    thousandths = int((seconds - whole) * 1000)
    if not thousandths:
        return format_duration(whole)
    return f"{whole // 60:02}:{whole % 60:02}.{thousandths:03}"


def exit_code(status: int) -> str:
    """A wait status as `CODE:SIGNAL`. A shell's exit code for a signal loses the 128 that the shell adds."""
    return f"{status >> 8 & 0x7F}:{status & 0x7F}"


def derived_exit_code(status: int) -> str:
    """The highest status of the steps as `CODE:SIGNAL`, unchanged."""
    return f"{status >> 8 & 0xFF}:{status & 0x7F}"


def moment(at: float, now: float, environ: object) -> str:
    """A time in SLURM_TIME_FORMAT; `Unknown` if it is not known."""
    if not at:
        return "Unknown"
    from spritz.presentation.local_time import local_time

    style = environ.get("SLURM_TIME_FORMAT", "")  # type: ignore[attr-defined]  # a mapping
    return local_time(at, style, now)
