"""A progress bar on a terminal where Rich is installed (the extra `progress`); nothing elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spritz.cli.call.context import Context


@contextmanager
def progress(context: Context, what: str, total: int | None) -> Iterator[Callable[[int], None] | None]:
    """A function that takes the number done out of `total`; None if no bar is shown."""
    if not context.stderr.isatty() or find_spec("rich") is None:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=context.stderr), transient=True) as bar:
        line = bar.add_task(what, total=total)
        yield lambda done: bar.update(line, completed=done)
