"""Ask for confirmation and send an edit: sacctmgr's "Would you like to commit changes?".

Source: sacctmgr(1) -i; what 22.05 prints.
"""

from __future__ import annotations

import os
import select
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.client.errors import RemoteError
from spritz.model.limits.records import Book, BookEdited, EditBook, GetBook, Record, RehearseEdit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spritz.cli.call.context import Context
    from spritz.cli.listings.acct.connect import DatabaseConnection

#: Seconds that the user has to answer.
ASK_SECONDS = 30.0
#: Attempts at an edit while other clients change the accounting policy at the same time.
_ATTEMPTS = 10

#: The message of 22.05 before the daemon's own.
NO_PRIVILEGE = "Your user doesn't have privilege to perform this action"

#: (text to print, records to add or replace, records to delete)
Edit = tuple[str, list[Record], list[Record]]


def get_book(
    connection: DatabaseConnection, *, transactions: bool = False, deleted: bool = False, level: str = ""
) -> Book:
    """Accounting's whole policy. `level`: the AdminLevel that the caller must have. Raises RemoteError
    (ESLURM_ACCESS_DENIED).
    """
    return connection.call(GetBook(transactions=transactions, deleted=deleted, level=level), Book, timeout=60.0)


def may(connection: DatabaseConnection, level: str) -> bool:
    """Whether the caller has this AdminLevel."""
    try:
        get_book(connection, level=level)
    except RemoteError as error:
        if error.code != "ESLURM_ACCESS_DENIED":
            raise
        return False
    return True


@contextmanager
def refusal(context: Context, line: str) -> Iterator[None]:
    """Print a refusal in the block: the daemon's message, then `line` with the message for {}. Raises AlreadyReported
    then.
    """
    try:
        yield
    except RemoteError as error:
        if error.code != "ESLURM_ACCESS_DENIED":
            raise
        context.error(error.message)
        context.err(line.format(error.message))
        raise AlreadyReported from error


def commit(
    connection: DatabaseConnection,
    context: Context,
    make: Callable[[Book], Edit],
    *,
    at_once: bool,
    unchanged: int = 1,
    adding: str | None = None,
) -> int:
    """Show the edit that `make` makes of the policy, ask, and send it. Makes it again if the policy changed meanwhile.

    Returns the exit code, `unchanged` if there is nothing to do. `adding`: the noun for the refusal of an `add` (None
    for other edits). A user without the right to change anything is refused even if the edit would change nothing.
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
    connection: DatabaseConnection,
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
    # Try the edit first: 22.05 prints no success for an edit that the daemon would refuse.
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
    """Whether the caller is the coordinator of an account."""
    if not book.coordinators:
        return False

    from spritz.presentation.users import name_of

    name = name_of(os.getuid())
    return any(coordinator.user == name for coordinator in book.coordinators)


def _book_to_edit(connection: DatabaseConnection) -> Book:
    """The policy, decoded strictly: edits send whole records back, and would drop fields that this version ignores."""
    return connection.call_exact(GetBook(), Book, timeout=60.0)


def _rehearse(connection: DatabaseConnection, edit: RehearseEdit, context: Context) -> None:
    """Check a deletion before the question. Raises AlreadyReported after the daemon's objection."""
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
    """Ask a yes-or-no question; False without an answer in time."""
    context.out(question)
    for _ in range(10):
        context.out("(N/y): ")
        context.stdout.flush()
        try:
            ready = select.select([context.stdin], [], [], ASK_SECONDS)[0]
        except (ValueError, OSError):
            ready = [context.stdin]  # not a file: cannot be polled
        if not ready:
            context.out("timeout\n")
            return False
        line = context.stdin.readline()
        answer = line.strip().lower()
        if not context.stdin.isatty():
            context.out("\n")  # a terminal has echoed the user's newline
        if not line or answer in ("n", "no", ""):
            return False
        if answer in ("y", "yes"):
            return True
        context.out("Y or N please\n")
    return False
