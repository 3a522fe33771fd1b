"""`sacctmgr modify … set RawUsage=0`: reset the controller's usage.

The database does not hold this usage, so the command goes to the controller, at once and without a question, as in
22.05.

Source: sacctmgr(1) RawUsage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.manager.arguments import match
from spritz.cli.administration.manager.change import selected
from spritz.cli.call.already_reported import AlreadyReported
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.model.commands.job import Done
from spritz.model.limits.records import ResetUsage

if TYPE_CHECKING:
    from spritz.cli.administration.manager.arguments import Conditions, Word
    from spritz.cli.call.context import Context
    from spritz.model.limits.records import Book

ENTITIES = ("account", "user", "qos")


def split_settings(setting: list[Word]) -> tuple[list[Word], list[Word]]:
    """The words that set RawUsage, and the others."""
    resets = [word for word in setting if match(word.key, ("rawusage",), 4) is not None]
    return resets, [word for word in setting if word not in resets]


def reset(entity: str, book: Book, selection: Conditions, words: list[Word], context: Context) -> int:
    """0 once the controller has reset the usage, 1 for bad arguments. Raises AlreadyReported if it does not answer."""
    if any(word.value.strip() != "0" for word in words):
        context.error("Raw usage can only be set to 0 (zero)")
        return 1
    if entity == "user" and not selection.accounts:
        context.error("An account must be specified")
        return 1
    keys: list[tuple[str | int, ...]]
    if entity == "qos":
        names = [name.lower() for name in selection.names]
        keys = [("q", qos_record.name) for qos_record in book.qos if not names or qos_record.name in names]
    else:
        keys = [("a", association.id) for association in selected(book, selection, users=entity == "user")]
    if not keys:
        context.out(" Nothing modified\n")
        return 1

    try:
        with connect_controller() as controller:
            controller.call(ResetUsage(keys=tuple(keys)), Done)
    except ClientError as error:
        context.error(f"the controller holds the usage: {error.message}")
        raise AlreadyReported from error
    return 0
