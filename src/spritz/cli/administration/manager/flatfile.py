"""A cluster's associations as lines of text, which `sacctmgr dump` writes and `load` reads.

    Cluster - 'tux':Fairshare=1:QOS='normal'
    Parent - 'root'
    Account - 'physics':Description='physics':Organization='science':Fairshare=10
    Parent - 'physics'
    User - 'adam':DefaultAccount='physics':Fairshare=1

A parent precedes the records below it; `#` starts a comment. Source: sacctmgr(1) FLAT FILE DUMP AND LOAD; the order of
lines and of options is 22.05's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.manager import settings
from spritz.cli.administration.manager.arguments import Word
from spritz.model.limits.records import Association, User

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spritz.model.limits.records import Book

HEAD = """\
# To edit this file start with a cluster line for the new cluster
# Cluster - 'cluster_name':MaxTRESPerJob=node=50
# Followed by Accounts you want in this fashion (root is created by default)...
# Parent - 'root'
# Account - 'cs':MaxTRESPerJob=node=5:MaxJobs=4:MaxTRESMinsPerJob=cpu=20:FairShare=399:MaxWallDurationPerJob=40:\
Description='Computer Science':Organization='LC'
# Any of the options after a ':' can be left out and they can be in any order.
# If you want to add any sub accounts just list the Parent THAT HAS ALREADY
# BEEN CREATED before the account line in this fashion...
# Parent - 'cs'
# Account - 'test':MaxTRESPerJob=node=1:MaxJobs=1:MaxTRESMinsPerJob=cpu=1:FairShare=1:MaxWallDurationPerJob=1:\
Description='Test Account':Organization='Test'
# To add users to a account add a line like this after a Parent - 'line'
# User - 'lipari':MaxTRESPerJob=node=2:MaxJobs=3:MaxTRESMinsPerJob=cpu=4:FairShare=1:MaxWallDurationPerJob=1
"""

#: Limits in the order in which they are written, without those of Slurm that Spritz does not store.
LIMITS = (
    *("Fairshare", "GrpTRESMins", "GrpTRESRunMins", "GrpTRES", "GrpJobs", "GrpJobsAccrue", "GrpSubmitJobs", "GrpWall"),
    *("MaxTRESMinsPerJob", "MaxTRESPerJob", "MaxTRESPerNode", "MaxJobs", "MaxJobsAccrue", "MinPrioThreshold"),
    *("MaxSubmitJobs", "MaxWallDurationPerJob", "Priority", "DefaultQOS", "QOS"),
)


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


def limits(association: Association) -> list[tuple[str, object]]:
    """(option, value) of each limit that the association sets itself."""
    options: list[tuple[str, object]] = []
    for option in LIMITS:
        row = settings.ASSOCIATION.get(option.lower())
        value = getattr(association, row[0]) if row is not None else None
        if value is not None and value != "":
            options.append((option, value))
    return options


def _line(title: str, name: str, values: Iterable[tuple[str, str]], association: Association) -> str:
    parts = [f"{title} - {_quoted(name)}", *(f"{key}={_quoted(text)}" for key, text in values if text)]
    for option, value in limits(association):
        kind = settings.ASSOCIATION[option.lower()][1]
        parts.append(f"{option}={_quoted(str(value)) if kind in ('list', 'name') else value}")
    return ":".join(parts)


def write(book: Book, cluster: str) -> Iterator[str]:
    """The lines of a cluster, without the comments of `HEAD`."""
    associations = [association for association in book.associations if association.cluster == cluster]
    users: dict[str, list[Association]] = {}
    below: dict[str, list[Association]] = {}
    for record in associations:
        (users.setdefault(record.account, []) if record.user else below.setdefault(record.parent, [])).append(record)
    accounts = {account.name: account for account in book.accounts}
    people = {user.name: user for user in book.users}
    defaults = {record.user: record.account for record in associations if record.user and record.is_default}
    coordinated: dict[str, list[str]] = {}
    for item in book.coordinators:
        coordinated.setdefault(item.user, []).append(item.account)
    wckeys: dict[str, list[str]] = {}
    for key in book.wckeys:
        if key.cluster == cluster:
            wckeys.setdefault(key.user, []).append(key.name)

    def user_line(association: Association) -> str:
        person = people.get(association.user) or User(name=association.user)
        values = [
            ("Partition", association.partition),
            ("DefaultAccount", defaults.get(association.user, "")),
            ("DefaultWCKey", person.default_wckey),
            ("AdminLevel", person.admin if person.admin != "None" else ""),
            ("Coordinator", ",".join(sorted(coordinated.get(association.user, ())))),
            ("WCKeys", ",".join(wckeys.get(association.user, ()))),
        ]
        return _line("User", association.user, values, association)

    root = next((record for record in associations if record.account == "root" and not record.user), None)
    if root is None:
        return
    yield _line("Cluster", cluster, (), root)
    stack = ["root"]
    while stack:
        name = stack.pop()
        users_here = sorted(users.get(name, ()), key=lambda record: (record.user, record.partition))
        children = sorted(below.get(name, ()), key=lambda record: record.account)
        if not users_here and not children:
            continue
        yield f"Parent - {_quoted(name)}"
        yield from map(user_line, users_here)
        for child in children:
            account = accounts[child.account]
            values = [("Description", account.description), ("Organization", account.organization)]
            yield _line("Account", child.account, values, child)
        stack += [child.account for child in reversed(children)]


class Line:
    """A parsed line: `Title - name` and its options; `number` counts from 1."""

    def __init__(self, number: int, title: str, name: str, options: list[Word]) -> None:
        self.number = number
        self.title = title
        self.name = name
        self.options = options


class BadLine(Exception):
    """A line that is not in the format of a dump; the message is sacctmgr's."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def read(text: str) -> Iterator[Line]:
    """The lines of a dump, without comments and empty lines. Raises BadLine."""
    for number, line in enumerate(text.splitlines(), 1):
        parts = _split(line)
        if not parts:
            continue
        title, dash, name = parts[0].partition("-")
        if not dash:
            raise BadLine(number, f"Misformatted line({number}): {line.strip()}")
        options = []
        for part in parts[1:]:
            key, _, value = part.partition("=")
            operator = "="
            if key[-1:] in ("+", "-"):
                operator, key = key[-1] + "=", key[:-1]
            options.append(Word(key.strip().lower(), operator, value.strip(), part))
        yield Line(number, title.strip().lower(), name.strip(), options)


def _split(line: str) -> list[str]:
    """The parts between colons, without quotation marks; colons and `#` inside quotes are text; `#` ends the line."""
    parts, part, quote = list[str](), "", ""
    for letter in line:
        if quote:
            if letter == quote:
                quote = ""
            else:
                part += letter
        elif letter in "'\"":
            quote = letter
        elif letter == "#":
            break
        elif letter == ":":
            parts.append(part)
            part = ""
        else:
            part += letter
    if part.strip() or parts:
        parts.append(part)
    return [part.strip() for part in parts] if any(part.strip() for part in parts) else []
