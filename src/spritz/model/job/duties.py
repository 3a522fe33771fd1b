"""What each field of a job's request declares, read from the table below the record (`model.job.record.DUTIES`).

Who needs a list of fields derives it from `FIELDS`, once, when its module is imported (docs/decisions/0229).
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job import record

#: When `scontrol update` may change a field, the least first: not at all; while the job waits; while it runs too, with
#: effect if it is queued again; while it runs too, at once; after its end too.
UPDATES = ("never", "pending", "active", "running", "always")


class Duty(Struct, frozen=True, kw_only=True):
    """What a field declares. The columns of `model.job.record.DUTIES` say what each is."""

    update: str
    #: who may change it: "admin", "operator" or "" (the job's owner)
    right: str
    placed: bool
    own: bool
    longest: int | None
    json: str
    shown: str
    idle: str


def read(table: str) -> dict[str, Duty]:
    """The duties by field. Raises ValueError for a line that is not one of the table."""
    duties: dict[str, Duty] = {}
    for line in table.splitlines():
        columns, _, idle = line.partition(";")
        name, update, placed, own, longest, json, shown = columns.split()
        update, _, right = update.partition("/")
        if update not in UPDATES or right not in ("", "admin", "operator") or name in duties:
            raise ValueError(line)
        if placed not in ("placed", "unseen") or own not in ("own", "alike"):
            raise ValueError(line)
        duties[name] = Duty(
            update=update,
            right=right,
            placed=placed == "placed",
            own=own == "own",
            longest=None if longest == "-" else int(longest),
            json="" if json == "-" else json,
            shown="" if shown == "-" else shown,
            idle=idle.strip(),
        )
    return duties


#: field of `JobSpec` -> its duties
FIELDS = read(record.DUTIES)


def updatable(update: str) -> frozenset[str]:
    """The fields that `scontrol update` may change then, or even later (`UPDATES`)."""
    late = UPDATES[UPDATES.index(update) :]
    return frozenset(name for name, duty in FIELDS.items() if duty.update in late)


def reserved_for(right: str) -> frozenset[str]:
    """The fields that only these people may change."""
    return frozenset(name for name, duty in FIELDS.items() if duty.right == right)
