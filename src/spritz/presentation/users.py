"""Users and groups by name and number, from the machine's databases.

Source: getpwnam(3); squeue(1) --user, scancel(1) --user.
"""

from __future__ import annotations

import grp
import pwd


def uid_of(word: str) -> int | None:
    """The number of a user given by name or number; None if there is no such user.

    A number needs no entry in the database.
    """
    try:
        return pwd.getpwnam(word).pw_uid
    except (KeyError, ValueError):
        return int(word) if word.isascii() and word.isdigit() and len(word) <= 10 else None


def name_of(uid: int) -> str:
    """Login name, or the number if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def proper_name(user: str) -> str:
    """The user's full name in the machine's database; "" if there is none."""
    try:
        return pwd.getpwnam(user).pw_gecos.partition(",")[0]
    except (KeyError, ValueError):
        return ""


def group_of(gid: int) -> str:
    """The group's name, or its number if there is none."""
    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return str(gid)
