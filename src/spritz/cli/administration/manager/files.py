"""`sacctmgr dump`, `load` and `archive`: files of a cluster's associations, and of purged records.

Source: sacctmgr(1) FLAT FILE DUMP AND LOAD, ARCHIVE FUNCTIONALITY; what 22.05 prints.
"""

from __future__ import annotations

import errno
import os
from time import perf_counter
from typing import TYPE_CHECKING

from spritz.cli.administration.manager.arguments import match
from spritz.cli.administration.manager.commit import NO_PRIVILEGE, agreed, commit, get_book, may
from spritz.cli.administration.manager.flatfile import HEAD, write
from spritz.cli.administration.manager.load import Loading
from spritz.cli.call.already_reported import AlreadyReported
from spritz.client.errors import ClientError
from spritz.model.accounting.accounting_admin import ArchiveDump, ArchiveLoad, Changed
from spritz.model.errors import SpritzError
from spritz.presentation.users import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.administration.manager.arguments import Word
    from spritz.cli.administration.manager.commit import Edit
    from spritz.cli.call.context import Context
    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.model.limits.records import Book

#: Size limit of a file to load, in bytes: enough for a hundred thousand users.
_FILE_MAX = 64 * 1024 * 1024


def dump(connection: DatabaseConnection, words: Sequence[Word], context: Context) -> int:
    """`dump CLUSTER [file=PATH]`. Always 0; raises AlreadyReported after a message."""
    cluster = path = ""
    for word in words:
        known = match(word.key, ("cluster", "name", "file"), 1) if word.key else "cluster"
        if known == "file":
            path = word.value
        elif known is None or cluster:
            context.err(f" Unknown option: {word.text}\n")
            raise AlreadyReported
        else:
            cluster = word.value.lower()
    if not cluster:
        context.err(" We need a cluster to dump.\n")
        raise AlreadyReported
    book = get_book(connection)
    lines = list(write(book, cluster))
    if not lines:
        context.err(f" Cluster {cluster} doesn't exist.\n")
        raise AlreadyReported
    if not may(connection, "Administrator"):
        if all(user.name != name_of(os.getuid()) for user in book.users):
            context.err(f" Your uid ({os.getuid()}) is not in the accounting system, can't dump cluster.\n")
        else:
            context.err(" Your user does not have sufficient privileges to dump clusters.\n")
        raise AlreadyReported
    if not path:
        path = f"./{cluster}.cfg"
        context.out(f" No filename given, using {path}.\n")
    try:
        _write(os.path.join(context.cwd, path), HEAD + "".join(f"{line}\n" for line in lines))
    except OSError as error:
        context.err(f"Can't open {path} for dumping: {error.strerror}\n")
        raise AlreadyReported from error
    for line in lines:
        context.info(line)
    return 0


def _write(path: str, text: str) -> None:
    """Write a file that the user named. Raises OSError.

    Replaces an older dump only once the new one is complete, so that a full disk does not destroy it. Opens symbolic
    links, devices and pipes directly: a rename over /dev/stdout would replace it for the whole machine.
    """
    target = os.path.realpath(path)
    if os.path.lexists(target) and not os.path.isfile(target):
        with open(target, "w", encoding="utf-8") as stream:
            stream.write(text)
        return
    with open(f"{target}.new", "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(f"{target}.new", target)


def load(connection: DatabaseConnection, words: Sequence[Word], context: Context, *, at_once: bool) -> int:
    """`load PATH [clean] [cluster=NAME]`. Returns the exit code; raises AlreadyReported after a message."""
    cluster = path = ""
    clean = False
    for number, word in enumerate(words):
        known = match(word.key, ("file", "cluster"), 1) if word.key else "file"
        if not word.key and word.value.lower() == "clean":
            clean = True
        elif known == "file" and not path:
            path = word.value
        elif known == "file":
            context.err(
                f" File name already set to {path}\n error: Problem with line({number})\n"
                " Problem with requests: Unspecified error\n"
            )
            raise AlreadyReported
        elif known == "cluster":
            cluster = word.value.lower()
        else:
            context.err(
                f" Unknown option: {word.text}\n error: Problem with line({number})\n"
                " Problem with requests: Unspecified error\n"
            )
            raise AlreadyReported
    if not path:
        context.err(" No filename given, specify one with file=''\n")
        raise AlreadyReported
    try:
        with open(os.path.join(context.cwd, path), "rb") as stream:
            text = stream.read(_FILE_MAX).decode("utf-8", "replace")
    except OSError as error:
        context.err(f' Unable to read "{path}": {error.strerror}\n')
        raise AlreadyReported from error

    began = perf_counter()
    reported = False

    def make(book: Book) -> Edit:
        nonlocal reported
        edit = Loading(book, context, cluster=cluster, clean=clean).edit(text)
        if (edit[1] or edit[2]) and not reported:
            reported = True
            context.info(f"Done adding cluster in usec={int((perf_counter() - began) * 1e6)}")
        return edit

    # "Nothing new" is not a failure here.
    return commit(connection, context, make, at_once=at_once, unchanged=0)


_KINDS = {"events": "ArchiveEvents", "jobs": "ArchiveJobs", "steps": "ArchiveSteps", "suspend": "ArchiveSuspend"}
_KINDS |= {"txn": "ArchiveTXN", "resv": "ArchiveResvs", "usage": "ArchiveUsage"}
_PURGES = {
    "purgeeventafter": "PurgeEventAfter",
    "purgejobafter": "PurgeJobAfter",
    "purgeresvafter": "PurgeResvAfter",
    "purgestepafter": "PurgeStepAfter",
    "purgesuspendafter": "PurgeSuspendAfter",
    "purgetxnafter": "PurgeTXNAfter",
    "purgeusageafter": "PurgeUsageAfter",
}


def archive(
    connection: DatabaseConnection, words: Sequence[Word], context: Context, *, at_once: bool, quiet: bool = False
) -> int:
    """`archive dump [jobs] [purgejobafter=…] …` and `archive load [file=]PATH`. `quiet`: print nothing on success."""
    verb = match(words[0].value.lower(), ("dump", "load"), 1) if words and not words[0].key else None
    if verb == "dump":
        return _archive_dump(connection, words[1:], context, at_once=at_once, quiet=quiet)
    if verb == "load":
        return _archive_load(connection, words[1:], context, quiet=quiet)
    context.err('No valid entity in archive command\nInput line must include, "Dump", or "load"\n')
    return 1


def _archive_dump(
    connection: DatabaseConnection, words: Sequence[Word], context: Context, *, at_once: bool, quiet: bool
) -> int:
    directory = script = ""
    kinds: dict[str, bool] = {}
    periods: dict[str, str] = {}
    for word in words:
        name = word.key or word.value.lower()
        kind = match(name, tuple(_KINDS), 2)
        period = match(name, tuple(_PURGES), 6) if word.key else None
        if kind is not None:
            kinds[_KINDS[kind]] = not word.key or word.value.lower() in ("1", "yes", "true")
        elif period is not None:
            periods[_PURGES[period]] = word.value
        elif word.key and match(name, ("directory",), 1):
            directory = os.path.join(context.cwd, word.value)
        elif word.key and match(name, ("script",), 2):
            script = os.path.join(context.cwd, word.value)
        else:
            context.err(f" Unknown option: {word.text}\n")
            raise AlreadyReported
    if directory and not os.path.isdir(directory):
        reason = os.strerror(errno.ENOTDIR if os.path.lexists(directory) else errno.ENOENT)
        context.err(
            f" dump: Failed to stat {directory}: {reason}\n"
            " Note: For archive dump, the directory must be on the calling host.\n"
        )
        return 1
    if not at_once:
        question = (
            "This may result in loss of accounting database records (if Purge* options enabled).\n"
            "Are you sure you want to continue? (You have 30 seconds to decide)\n"
        )
        if not agreed(context, question):
            context.out(" Changes Discarded\n")
            return 0
    request = ArchiveDump(directory=directory, script=script, periods=periods, kinds=kinds)
    try:
        connection.call(request, Changed, timeout=None)
    except ClientError as error:
        if error.code == "ESLURM_ACCESS_DENIED":
            context.error(NO_PRIVILEGE)
        context.err(f" Problem dumping archive: {error.message}\n")
        return 1
    if not quiet:
        context.info("accounting_storage/slurmdbd: jobacct_storage_p_archive: SUCCESS")
    return 0


def _archive_load(connection: DatabaseConnection, words: Sequence[Word], context: Context, *, quiet: bool) -> int:
    path = ""
    for word in words:
        if not word.key or match(word.key, ("file",), 1):
            path = word.value
        elif match(word.key, ("insert",), 2):
            raise SpritzError("insert= is not supported by Spritz: it takes no SQL", code="ESLURM_NOT_SUPPORTED")
        else:
            context.err(f" Unknown option: {word.text}\n")
            raise AlreadyReported
    if not path:
        context.error("Error with request.")
        context.err(" Problem loading archive file: Unspecified error\n")
        return 1
    try:
        connection.call(ArchiveLoad(path=os.path.join(context.cwd, path)), Changed, timeout=None)
    except ClientError as error:
        if error.code == "ESLURM_ACCESS_DENIED":
            context.error(NO_PRIVILEGE)
            context.err(f" Problem loading archive file: {error.message}\n")
            return 1
        context.err(
            f" Problem loading archive file: {error.message}\n"
            " Note: For archive load, the file must be accessible on the slurmdbd host.\n"
        )
        return 1
    if not quiet:
        context.info("accounting_storage/slurmdbd: jobacct_storage_p_archive_load: SUCCESS")
    return 0
