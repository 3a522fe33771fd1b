"""One run of scontrol: its flags, and a connection that is made when first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.times import format_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from msgspec import Struct

    from spritz.cli.call.context import Context
    from spritz.client.command.sync import Connection

    T = TypeVar("T")


class Session:
    """`details` counts `-d`; `json` is None for text. `status` is what the process will return. `help_text` makes what
    `scontrol --help` prints.
    """

    __slots__ = (
        "_controller",
        "all",
        "context",
        "details",
        "finished",
        "future",
        "help_text",
        "json",
        "local",
        "oneliner",
        "quiet",
        "status",
        "verbose",
    )

    def __init__(self, context: Context, help_text: Callable[[], str]) -> None:
        self.context = context
        self.help_text = help_text
        self.oneliner = False
        self.details = 0
        self.all = False
        self.future = False
        self.quiet = False
        self.verbose = False
        self.json: str | None = None
        #: jobs of a federation are not looked for on other clusters
        self.local = False
        self.status = 0
        self.finished = False
        self._controller: Connection | None = None

    def controller(self, *, wait_seconds: float | None = None) -> Connection:
        """The connection, opened on first use; see `connect_controller` for the wait. Raises ClientError."""
        if self._controller is None:
            from spritz.client.command.sync import connect_controller

            self._controller = connect_controller(wait_seconds=wait_seconds)
            if self.verbose:
                from spritz.client.locate import locate_controller

                config = locate_controller()
                self.context.info(f"connected to slurmctld of cluster {config.cluster_name} ({config.path})")
        return self._controller

    def tell_age(self, now: float, records: int) -> None:
        """-v: of when the records are, and how many."""
        if self.verbose:
            self.out(f"last_update_time={format_time(now)}, records={records}\n")

    def call(
        self, request: Struct, reply: type[T], *, timeout: float | None = -1.0, wait_seconds: float | None = None
    ) -> T:
        """Ask the controller. Raises ClientError, RemoteError for a refusal; a lost connection is made again next
        time, and at once if the controller closed it before it was asked."""
        return self._ask(
            lambda: self.controller(wait_seconds=wait_seconds).call(request, reply, timeout=timeout),
        )

    def joined(self, request: Struct, item: type[T], field: str) -> T:
        """As `call`, for an answer that comes in pieces: see `Connection.joined`."""
        return self._ask(lambda: self.controller().joined(request, item, field))

    def _ask(self, ask: Callable[[], T]) -> T:
        from spritz.client.errors import ClientError, RemoteError

        try:
            try:
                return ask()
            except ClientError as error:
                if error.code != "SLURMCTLD_COMMUNICATIONS_SEND_ERROR":
                    raise
                self.close()
                return ask()  # it was not heard: asking again asks once
        except RemoteError:
            raise
        except ClientError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection to the controller, if one was opened."""
        if self._controller is not None:
            self._controller.close()
            self._controller = None

    def out(self, text: str) -> None:
        self.context.out(text)

    def hint(self, text: str) -> None:
        """A hint for users at a terminal; programs get only the error."""
        if text and self.context.stderr.isatty():
            self.context.info(text)

    def print_plugin_lines(self, lines: tuple[str, ...], *, refused: bool = False) -> None:
        """Messages of the site's plugins for the user."""
        for line in lines:
            (self.context.error if refused else self.context.info)(line)

    def say(self, line: str) -> None:
        """A line on standard error without the program's name, as scontrol has most of its errors."""
        self.context.err(line + "\n")
