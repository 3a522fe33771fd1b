"""`update JobId=…`: jobs by id or by name. Source: scontrol(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.control.jobs import items, named, say_missing, say_refused, target_of
from spritz.cli.administration.control.pairs import find, not_supported, split, unquoted
from spritz.cli.administration.control.update.job_keys import KEYS, NoChange, NotABoolean, Plain, minutes
from spritz.client.errors import RemoteError
from spritz.model.commands.job import Done, UpdateJob
from spritz.model.errors import ESLURM, SpritzError
from spritz.model.job.job_filter import JobFilter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.cli.administration.control.session import Session
    from spritz.model.job.job_filter import JobTarget

    Changes = dict[str, object]


def run(session: Session, words: list[str]) -> int:
    """update JobId=LIST or JobName=NAME, then keys."""
    ids: list[str] = []
    name = ""
    changes: Changes = {}
    limit = ""
    for place, word in enumerate(_joined(words)):
        if "=" not in word and not _may_be_alone(word):
            session.say(f"Invalid input: {word}")
            session.say("Request aborted")
            return 1
        key, value = split(word)
        value = unquoted(value)
        lower = key.lower()
        if len(lower) >= 3 and "jobid".startswith(lower):
            ids = items([value])
            continue
        if lower in ("jobname", "name") and not ids and not name and not place:
            name = value
            continue
        if len(lower) >= 5 and "timelimit".startswith(lower):
            limit = value
            continue
        row = find(key, KEYS)
        if row is None:
            return not_supported(session, word)
        known, entry = row
        if entry.bare and "=" in word:
            return not_supported(session, word)
        if entry.changes is None:
            session.context.error(f"update of {known} is not supported by Spritz: {entry.refused}")
            return 1
        try:
            changes.update(entry.changes(value))
        except NoChange as error:
            session.say(error.message)
            session.say("No changes specified")
            return 1
        except Plain as error:
            session.say(error.message)
            return 1
        except NotABoolean as error:
            raise SpritzError(f"Invalid {known} value: {error.message}") from error
    if not changes and not limit:
        session.say("No changes specified")
        return 1
    if name:
        ids = named(session, name)
        if not ids:
            session.say(f"{ESLURM['ESLURM_INVALID_JOB_ID'][1]} for job {name}")
            return 1
    status = 0
    for job in ids:
        status = _update(session, job, changes, limit) or status
    return status


def _joined(words: list[str]) -> Iterator[str]:
    """`KEY VALUE` is taken for `KEY=VALUE`, unless the key may be without a value."""
    remaining = iter(words)
    for word in remaining:
        value = None if "=" in word or _may_be_alone(word) else next(remaining, None)
        yield word if value is None else f"{word}={value}"


def _may_be_alone(word: str) -> bool:
    row = find(word, KEYS)
    return row is not None and (row[0] == "Nice" or row[1].bare)


def _update(session: Session, word: str, changes: Changes, limit: str) -> int:
    target = target_of(word)
    if target is None:
        session.say(f"{ESLURM['ESLURM_INVALID_JOB_ID'][1]} for job {word}")
        return 1
    try:
        if limit:
            changes = {**changes, "time_limit_minutes": _limit(session, target, limit)}
        answer = session.call(UpdateJob(target=target, changes=changes), Done)
    except RemoteError as error:
        session.print_plugin_lines(error.told, refused=True)
        if session.quiet:
            return 1
        say_refused(session, word, target, error.message)
        session.hint(error.hint)
        return 1
    session.print_plugin_lines(answer.told)
    for message in answer.messages:
        say_refused(session, word, target, message)
    return say_missing(session, target, answer) or (1 if answer.messages else 0)


def _limit(session: Session, target: JobTarget, text: str) -> int:
    """TimeLimit: a limit, or `+` or `-` minutes from what it is now."""
    if text[:1] not in ("+", "-") or text == "-1":
        return minutes(text, "TimeLimit")
    from spritz.model.ids import INFINITE
    from spritz.model.queries.jobs import JobRows, ListJobs

    change = minutes(text[1:], "TimeLimit")
    query = ListJobs(
        filter=JobFilter(targets=(target,)), fields=("time_limit_minutes", "spec.time_limit_minutes"), all=True
    )
    rows = [row for piece in session.controller().stream(query, JobRows) for row in piece.rows]
    now = next((limit for row in rows for limit in row if isinstance(limit, int)), INFINITE)
    if now >= INFINITE:
        raise SpritzError("Invalid TimeLimit value: the job has no limit to change")
    changed = now + change if text[0] == "+" else now - change
    if changed < 1:
        raise SpritzError("Invalid TimeLimit value")
    return changed
