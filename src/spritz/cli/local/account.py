"""The account of the user whose cluster it is: without one, SLURM_JOB_ACCOUNT is unset in its jobs, and sacct, sshare
and sreport show none.

Owns nothing: what is there already stays as it is. root has the association root/root from the start.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from spritz.client.locate import locate_database
from spritz.client.sync import connect_address
from spritz.model.fairshare import FairShares, ListFairShares
from spritz.model.limits.records import Account, Association, Book, BookEdited, EditBook, GetBook, User

if TYPE_CHECKING:
    from spritz.client.sync import Connection

#: Times the edit is made again because others have changed the book meanwhile.
ATTEMPTS = 5


def give_account(conf: str, user: str, controller: Connection, deadline: float) -> None:
    """Make an account of the user's name with an association of the user, unless the user has one; return when the
    controller has heard of it, or at `deadline` (monotonic). Raises ClientError.
    """
    config = locate_database(conf)
    if config.kind != "slurmdbd" or user == "root":
        return
    address = config.addresses[0]
    with connect_address(address, timeout=config.message_timeout_seconds, owners=config.owners()) as database:
        for _ in range(ATTEMPTS):
            edit = wanted(database.call(GetBook(), Book), config.cluster_name, user)
            if edit is None:
                return
            if not database.call(edit, BookEdited).stale:
                break
    asked = ListFairShares(users=(user,))
    while not any(row.user == user for row in controller.call(asked, FairShares).rows):
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)


def wanted(book: Book, cluster: str, user: str) -> EditBook | None:
    """The edit that gives the user an account; None if there is nothing to do, or the cluster is not known yet."""
    mine = [association for association in book.associations if association.cluster == cluster]
    if not mine or any(one.user == user for one in mine):
        return None
    name = user.lower()
    puts: list[Account | User | Association] = []
    if not any(account.name == name for account in book.accounts):
        puts.append(Account(name=name, description=name, organization=name))
    if not any(one.name == user for one in book.users):
        puts.append(User(name=user))
    if not any(one.account == name and not one.user for one in mine):
        puts.append(Association(id=-1, cluster=cluster, account=name, parent="root"))
    puts.append(Association(id=-2, cluster=cluster, account=name, user=user, is_default=True))
    return EditBook(version=book.version, puts=tuple(puts))
