"""Commands that repeat a listing every few seconds (`-i SECONDS`) until they are interrupted."""

from __future__ import annotations

import signal


def end_on_interrupt() -> None:
    """Ctrl-C ends the process itself from now on, as it does a C program.

    An exception can get lost: where Python calls back by itself, at the end of an import for one, it is only printed.
    SIGINT stays ignored where it was ignored before.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
