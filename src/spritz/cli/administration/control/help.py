"""`scontrol help`: what `scontrol --help` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session


def show(session: Session, words: list[str]) -> int:
    session.out(session.help_text())
    return 0
