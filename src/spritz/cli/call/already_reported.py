"""An error whose message has been printed already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from spritz.cli.call.context import Context
    from spritz.client.command.sync import Connection


class AlreadyReported(SpritzError):
    """Ends a command with `exit_code`; its `main` catches it and prints nothing more."""

    def __init__(self, exit_code: int = 1) -> None:
        super().__init__("", exit_code=exit_code)


def connected(context: Context, words: str, *, named: bool = True) -> Connection:
    """A connection to the controller; `words`: the error text if there is none (`named`: prefixed with the command's
    name).

    Raises AlreadyReported.
    """
    from spritz.client.command.sync import connect_controller
    from spritz.client.errors import ClientError

    try:
        return connect_controller()
    except ClientError as error:
        if named:
            context.error(f"{words}: {error.message}")
        else:
            context.err(f"{words}: {error.message}\n")
        if error.hint and context.stderr.isatty():
            context.info(error.hint)
        raise AlreadyReported from error
