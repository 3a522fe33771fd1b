"""Asking, and sending an edit: sacctmgr's "Would you like to commit changes?".

Source: sacctmgr(1) -i; what 22.05 prints.
"""

from __future__ import annotations

import os
import select
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spritz.cli.already_reported import AlreadyReported
from spritz.client.errors import RemoteError
from spritz.model.limits.records import Book, BookEdited, EditBook, GetBook, Record, RehearseEdit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spritz.cli.context import Context
    from spritz.client.sync import Connection

#: How long one may think about it.
ASK_SECONDS = 30.0
#: Attempts, where others change the book at the same moment.
_ATTEMPTS = 10

#: what 22.05 says before the daemon's own words
NO_PRIVILEGE = "Your user doesn't have privilege to perform this action"

#: what an edit says, what it puts and what it drops
Edit = tuple[str, list[Record], list[Record]]


def get_book(connection: Connection, *, transactions: bool = False, deleted: bool = False, level: str = "") -> Book:
    """All of accounting's policy. `level`: the AdminLevel that it is for. Raises RemoteError (ESLURM_ACCESS_DENIED)."""
    return connection.call(GetBook(transactions=transactions, deleted=deleted, level=level), Book, timeout=60.0)


def may(connection: Connection, level: str) -> bool:
    """Has the caller this AdminLevel?"""
    try:
        get_book(connection, level=level)
    except RemoteError as error:
        if error.code != "ESLURM_ACCESS_DENIED":
            raise
        return False
    return True


@contextmanager
def refusal(context: Context, line: str) -> Iterator[None]:
    """Prints a refusal: the daemon's message, then `line` with the message for {}. Raises AlreadyReported."""
    try:
        yield
    except RemoteError as error:
        if error.code != "ESLURM_ACCESS_DENIED":
            raise
        context.error(error.message)
        context.err(line.format(error.message))
        raise AlreadyReported from error


def commit(
    connection: Connection,
    context: Context,
    make: Callable[[Book], Edit],
    *,
    at_once: bool,
    unchanged: int = 1,
    adding: str | None = None,
) -> int:
    """Show what `make` makes of the book, ask, and send it; made again if the book has changed meanwhile.

    `unchanged` is the status where there is nothing to do. `adding`: what is added, for those who may not (None: it is
    not adding). A user without the right to change anything is told so, also where nothing was found to change.
    """
    try:
        return _commit(connection, context, make, at_once=at_once, unchanged=unchanged, checked=adding is None)
    except RemoteError as error:
        if error.code != "ESLURM_ACCESS_DENIED":
            raise
        if adding is not None:
            context.err(f" Problem adding {adding}: {error.message}\n")
        else:
            context.error(NO_PRIVILEGE)
            context.err(f" Error with request: {error.message}\n")
        raise AlreadyReported from error


def _commit(
    connection: Connection,
    context: Context,
    make: Callable[[Book], Edit],
    *,
    at_once: bool,
    unchanged: int,
    checked: bool,
) -> int:
    book = _book_to_edit(connection)
    text, puts, drops = make(book)
    if not puts and not drops:
        if checked and unchanged and not _coordinates(book):
            get_book(connection, level="Operator")
        context.out(text)
        return unchanged
    # What cannot be is not told as done.
    rehearsal = RehearseEdit(version=book.version, puts=tuple(puts), drops=tuple(drops))
    if drops:
        _rehearse(connection, rehearsal, context)
    elif not at_once:
        connection.call(rehearsal, BookEdited, timeout=60.0)
    if not at_once:
        context.out(text)
        if not agreed(context):
            context.out(" Changes Discarded\n")
            return 0
    for _ in range(_ATTEMPTS):
        edit = EditBook(version=book.version, puts=tuple(puts), drops=tuple(drops))
        if not connection.call(edit, BookEdited, timeout=60.0).stale:
            context.out(text if at_once else "")
            return 0
        book = _book_to_edit(connection)
        _, puts, drops = make(book)
        if not puts and not drops:
            return 1
    context.error("others keep changing the accounts; try again")
    return 1


def _coordinates(book: Book) -> bool:
    """Does the caller coordinate an account?"""
    if not book.coordinators:
        return False

    from spritz.presentation.users import name_of

    name = name_of(os.getuid())
    return any(coordinator.user == name for coordinator in book.coordinators)


def _book_to_edit(connection: Connection) -> Book:
    """All of it, understood to the last field: records go back whole, and would lose what we do not know of."""
    return connection.call_exact(GetBook(), Book, timeout=60.0)


def _rehearse(connection: Connection, edit: RehearseEdit, context: Context) -> None:
    """What speaks against a deletion is said before the question. Raises AlreadyReported after sacctmgr's lines."""
    try:
        connection.call(edit, BookEdited, timeout=60.0)
    except RemoteError as error:
        if error.code == "ESLURM_ACCESS_DENIED":
            raise
        context.err(f" Error with request: {error.message}\n")
        raise AlreadyReported from error


def agreed(
    context: Context, question: str = "Would you like to commit changes? (You have 30 seconds to decide)\n"
) -> bool:
    """Ask, and wait for a while."""
    context.out(question)
    for _ in range(10):
        context.out("(N/y): ")
        context.stdout.flush()
        try:
            ready = select.select([context.stdin], [], [], ASK_SECONDS)[0]
        except (ValueError, OSError):
            ready = [context.stdin]  # no file behind it
        if not ready:
            context.out("timeout\n")
            return False
        line = context.stdin.readline()
        answer = line.strip().lower()
        if not context.stdin.isatty():
            context.out("\n")  # which a terminal has shown already
        if not line or answer in ("n", "no", ""):
            return False
        if answer in ("y", "yes"):
            return True
        context.out("Y or N please\n")
    return False
