"""Look up users and groups by name or number, in a thread, because name services may be slow."""

from __future__ import annotations

import asyncio
import grp
import pwd

from spritz.rest.answers import Refused
from spritz.timeouts import within

#: Time limit of a lookup in seconds.
_SECONDS = 5.0


async def uid_of(word: str) -> int:
    """The uid of a user, given by name or number. Raises Refused."""
    return await _looked_up(_user, word, "ESLURM_USER_ID_MISSING", "user_id")


async def gid_of(word: str) -> int:
    """The gid of a group, given by name or number. Raises Refused."""
    return await _looked_up(_group, word, "ESLURM_GROUP_ID_MISSING", "group_id")


async def name_of(uid: int) -> str:
    """The user's login name; the number as text if there is none."""
    async with within(_SECONDS):
        return await asyncio.to_thread(_name, uid)


async def _looked_up(find: object, word: str, code: str, field: str) -> int:
    async with within(_SECONDS):
        number: int | None = await asyncio.to_thread(find, word)  # type: ignore[arg-type]
    if number is None:
        raise Refused(code, source=field)
    return number


def _user(word: str) -> int | None:
    try:
        return pwd.getpwnam(word).pw_uid
    except (KeyError, ValueError):
        return _number(word)


def _group(word: str) -> int | None:
    try:
        return grp.getgrnam(word).gr_gid
    except (KeyError, ValueError):
        return _number(word)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 10 and int(word) < 1 << 32 else None
