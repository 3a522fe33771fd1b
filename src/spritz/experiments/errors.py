"""Errors of `spritz run` and its relatives, with a message and a hint for users."""

from __future__ import annotations


class ExperimentError(Exception):
    """An error with a one-line message for users, and an optional hint about the remedy."""

    def __init__(self, message: str, *, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
