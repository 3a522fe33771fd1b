"""Errors for people."""

from __future__ import annotations


class ExperimentError(Exception):
    """One line of what is wrong, and what would help."""

    def __init__(self, message: str, *, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
