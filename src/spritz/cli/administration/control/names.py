"""hostnames, hostlist and hostlistsorted, which need no controller.

Without an argument hostnames reads SLURM_NODELIST, not SLURM_JOB_NODELIST: so in 22.05 and since. Source: scontrol(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.notation.hostlist import HostlistError, compress, compress_sorted, expand

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session


def hostnames(session: Session, words: list[str]) -> int:
    """`scontrol show hostnames [LIST]`: one name a line; $SLURM_NODELIST if no list is given."""
    text = words[0] if words else session.context.environ.get("SLURM_NODELIST")
    if text is None:
        session.context.error("host list is empty")
        return 0
    try:
        names = expand(_of_file(text))
    except HostlistError as error:
        session.say(f"Invalid hostlist: {text}")
        session.context.info(str(error))
        return 0
    session.out("".join([f"{name}\n" for name in names]))
    return 0


def hostlist(session: Session, words: list[str]) -> int:
    """The shortest form that keeps order and duplicates."""
    return _compressed(session, words, ordered=False)


def hostlist_sorted(session: Session, words: list[str]) -> int:
    """The shortest form of the distinct names in order."""
    return _compressed(session, words, ordered=True)


def _compressed(session: Session, words: list[str], *, ordered: bool) -> int:
    if not words:
        session.say("invalid encode argument")
        return 1
    try:
        names = expand(_of_file(words[0]))
    except HostlistError as error:
        session.say(f"Invalid hostlist: {words[0]}")
        session.context.info(str(error))
        return 1
    session.out((compress_sorted if ordered else compress)(names) + "\n")
    return 0


def _of_file(text: str) -> str:
    """A path stands for the names in that file, divided by commas, blanks or lines."""
    if not text.startswith("/"):
        return text

    try:
        with open(text, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError as error:
        raise SpritzError(f"Can not open {text}: {error.strerror}") from error
