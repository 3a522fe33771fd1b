"""A failure about which everything has been said."""

from __future__ import annotations

from spritz.model.errors import SpritzError


class Silent(SpritzError):
    """Ends a command with `exit_code`; its `main` catches it and prints nothing more."""

    def __init__(self, exit_code: int = 1) -> None:
        super().__init__("", exit_code=exit_code)
