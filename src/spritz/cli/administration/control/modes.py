"""Keywords that only affect later keywords. Source: scontrol(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session


def show_all(session: Session, words: list[str]) -> int:
    """Also show hidden partitions, and jobs in them."""
    session.all = True
    return 0


def hide(session: Session, words: list[str]) -> int:
    session.all = False
    return 0


def details(session: Session, words: list[str]) -> int:
    session.details = 1
    return 0


def oneliner(session: Session, words: list[str]) -> int:
    session.oneliner = True
    return 0


def quiet(session: Session, words: list[str]) -> int:
    session.quiet = True
    return 0


def verbose(session: Session, words: list[str]) -> int:
    session.quiet, session.verbose = False, True
    return 0


def leave(session: Session, words: list[str]) -> int:
    """`exit` and `quit`. Returns the status that the process will return."""
    session.finished = True
    return session.status
