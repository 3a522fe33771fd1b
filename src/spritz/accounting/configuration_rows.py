"""slurmdbd's configuration in words: the second half of `sacctmgr show configuration`, without passwords.

Source: what 22.05's sacctmgr prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz import SLURM_VERSION
from spritz.accounting.engine import describe
from spritz.config.schema.slurmdbd import DBD_KEYS
from spritz.notation.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import URL

    from spritz.config.loaded import DbdSettings

_SECRET = frozenset({"StoragePass", "StorageUrl"})
_SECONDS = frozenset({"MessageTimeout", "TCPTimeout"})


def rows(settings: DbdSettings, url: URL, started_at: float, slurm_uid: int | None) -> list[tuple[str, str]]:
    """(key, value), in the order of the keys. `slurm_uid`: SlurmUser's number, if it is known."""
    values = dict(_keys(settings))
    values["BOOT_TIME"] = format_time(started_at)
    values["SLURMDBD_CONF"] = settings.path
    values["SLURMDBD_VERSION"] = SLURM_VERSION
    name = settings.text("SlurmUser")
    values["SlurmUser"] = name if slurm_uid is None else f"{name}({slurm_uid})"
    if settings.text("StorageUrl"):
        values["StorageUrl"] = describe(url)
    return sorted(values.items(), key=lambda row: row[0].lower())


def _keys(settings: DbdSettings) -> Iterator[tuple[str, str]]:
    for key in DBD_KEYS:
        if key.name in _SECRET:
            continue
        value = settings[key.name]
        if isinstance(value, bool):
            text = "Yes" if value else "No"
        elif key.name.startswith("Purge"):
            text = _period(str(value)) if value else "NONE"
        elif key.name == "MaxQueryTimeRange" and value is None:
            text = "UNLIMITED"
        elif key.name == "CommitDelay":
            text = f"{value} secs" if value else "No"
        elif key.name == "PrivateData":
            text = ",".join(settings.words(key.name)) or "none"
        elif value is None or value == ():
            text = "(null)"
        elif isinstance(value, tuple):
            text = ",".join(map(str, value))
        else:
            text = f"{value} secs" if key.name in _SECONDS else str(value)
        yield key.name, text


def _period(text: str) -> str:
    """`12month` -> `12 months`."""
    digits = text.rstrip("hourdaymnt")
    return f"{digits} {text[len(digits) :]}s"
