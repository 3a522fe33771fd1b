"""`sacctmgr modify user … set newname=…`: rename a user in all its records.

Source: sacctmgr(1) SPECIFICATIONS FOR USERS NewName; what 22.05 prints. Differs: users cannot rename themselves, and
only a single new name is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.call.already_reported import AlreadyReported

if TYPE_CHECKING:
    from spritz.cli.administration.manager.arguments import Conditions, Word
    from spritz.cli.administration.manager.commit import Edit
    from spritz.cli.call.context import Context
    from spritz.model.limits.records import Book, Record

_ONE_AT_A_TIME = "Can only change one at a time"


def split_settings(words: list[Word]) -> tuple[Word | None, list[Word]]:
    """The last `newname=` word, or None; and the words that are none."""
    renames = [word for word in words if word.key == "newname"]
    return (renames[-1] if renames else None), [word for word in words if word.key != "newname"]


def rename_user(book: Book, selection: Conditions, word: Word, others: list[Word], context: Context) -> Edit:
    """The edit that renames the selected user. `others`: settings in the same command, which are refused.

    Raises AlreadyReported after sacctmgr's lines.
    """
    names = list(dict.fromkeys(selection.names + selection.users))
    if len(names) > 1:
        context.error(_ONE_AT_A_TIME)
        context.err(f" Error with request: {_ONE_AT_A_TIME}\n")
        context.err(" If you are changing a users name you can only specify 1 user at a time.\n")
        raise AlreadyReported
    if not names:
        context.err(" There was a problem with your 'where' options.\n")
        raise AlreadyReported
    old, new = names[0], word.value
    if word.op != "=" or not new or "," in new or others:
        context.err(f" {_ONE_AT_A_TIME}: {word.text}\n" if others else f" Bad new name: {word.text}\n")
        raise AlreadyReported
    person = next((user for user in book.users if user.name == old), None)
    if person is None or any(user.name == new for user in book.users):
        return " Nothing modified\n", [], []
    coordinated = [coordinator for coordinator in book.coordinators if coordinator.user == old]
    wckeys = [wckey for wckey in book.wckeys if wckey.user == old]
    puts: list[Record] = [replace(person, name=new)]
    puts += [replace(association, user=new) for association in book.associations if association.user == old]
    puts += [replace(coordinator, user=new) for coordinator in coordinated]
    puts += [replace(wckey, user=new) for wckey in wckeys]
    return f" Modified users...\n  {old}\n", puts, [person, *coordinated, *wckeys]
