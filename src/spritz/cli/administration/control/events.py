"""`scontrol events`: what happens in the cluster, as it happens; with -o or --json a JSON object a line.

The same changes that slurmrestd's /spritz/v1/events sends. Slurm has no such keyword.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import decode, encode

from spritz.client.errors import RemoteError
from spritz.model.queries.events import CHANGE_TYPES, ChangeBatch, WatchChanges
from spritz.notation.times import format_time

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session
    from spritz.model.queries.events import Change

#: fields of every change, before those of its kind
_HEAD = ("sequence", "at", "type", "kind")


def watch(session: Session, words: list[str]) -> int:
    """events [since=N] [types=…] [job=…] [follow=no]. 0, when interrupted too."""
    since: int | None = None
    follow = True
    types: frozenset[str] = frozenset()
    jobs: frozenset[int] = frozenset()
    for word in words:
        key, _, value = word.partition("=")
        name = key.lower()
        numbers = value.split(",")
        if name == "since" and value.isascii() and value.isdigit():
            since = int(value)
        elif name == "types" and set(value.split(",")) <= set(CHANGE_TYPES):
            types = frozenset(value.split(","))
        elif name == "job" and all(number.isascii() and number.isdigit() for number in numbers):
            jobs = frozenset(map(int, numbers))
        elif name == "follow" and value.lower() in ("yes", "no"):
            follow = value.lower() == "yes"
        else:
            known = f"since=NUMBER, types={','.join(CHANGE_TYPES)}, job=NUMBERS, follow=yes|no"
            session.say(f"invalid argument {word}: {known} are accepted")
            return 1
    if since is None and not follow:
        since = 0
    as_json = session.oneliner or session.json is not None
    try:
        request = WatchChanges(since=since, follow=follow)
        for batch in session.controller().stream(request, ChangeBatch):
            if batch.incomplete:
                session.context.error("warning: earlier events are no longer kept")
            for change in batch.changes:
                if (types and change.type not in types) or (jobs and jobs.isdisjoint(change.job_ids)):
                    continue
                session.out(change.data.decode() + "\n" if as_json else _line(change))
            session.context.stdout.flush()
    except RemoteError as error:
        session.hint(error.hint)
        session.context.error(f"error: {error.message}")
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def _line(change: Change) -> str:
    """`2026-11-23T20:15:00 job JobStarted job_id=12 state=RUNNING nodes=n[1-2]`."""
    body = decode(change.data)
    fields = " ".join(f"{name}={_word(value)}" for name, value in body.items() if name not in _HEAD and value != "")
    return f"{format_time(body['at'])} {change.type} {body['kind']} {fields}\n"


def _word(value: object) -> str:
    if isinstance(value, str):
        return value if value.isprintable() and " " not in value else encode(value).decode()
    return encode(value).decode()
