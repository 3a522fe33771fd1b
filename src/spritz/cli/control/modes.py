"""Keywords that only affect later keywords. Source: scontrol(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.cli.control.session import Session


def show_all(session: Session, words: list[str]) -> int:
    """all"""
    session.all = True
    return 0


def hide(session: Session, words: list[str]) -> int:
    """hide"""
    session.all = False
    return 0


def details(session: Session, words: list[str]) -> int:
    """details"""
    session.details = 1
    return 0


def oneliner(session: Session, words: list[str]) -> int:
    """oneliner"""
    session.oneliner = True
    return 0


def quiet(session: Session, words: list[str]) -> int:
    """quiet"""
    session.quiet = True
    return 0


def verbose(session: Session, words: list[str]) -> int:
    """verbose"""
    session.quiet, session.verbose = False, True
    return 0


def leave(session: Session, words: list[str]) -> int:
    """exit, quit"""
    session.finished = True
    return session.status
