"""Queries about crontabs. Source: scrontab(1)."""

from __future__ import annotations

from msgspec import Struct


class GetCrontab(Struct, frozen=True, kw_only=True):
    """A user's crontab: the caller's (-1), or for operators another user's. Reply: `CrontabText`."""

    uid: int = -1


class CrontabText(Struct, frozen=True, kw_only=True):
    """`text` is "" if there is none. `disabled`: first and last lines (from 1) whose jobs were cancelled."""

    text: str = ""
    disabled: tuple[tuple[int, int], ...] = ()
