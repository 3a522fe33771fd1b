"""Give the user of a local cluster an account. Without an account, SLURM_JOB_ACCOUNT is unset in jobs, and sacct,
sshare and sreport show none.

Existing accounts and associations stay as they are. root has the association root/root from the start.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from spritz.client.command.sync import connect_address
from spritz.client.locate import locate_database
from spritz.model.accounting.fairshare import FairShares, ListFairShares
from spritz.model.limits.records import Account, Association, Book, BookEdited, EditBook, GetBook, User

if TYPE_CHECKING:
    from spritz.client.command.sync import Connection

#: Attempts at the edit, each after another client changed the associations in between.
ATTEMPTS = 5


def give_account(conf: str, user: str, controller: Connection, deadline: float) -> None:
    """Create an account named after the user, with an association for the user, unless the user already has one, as
    root has.

    Returns when the controller knows the association, or at `deadline` (seconds of time.monotonic). Raises ClientError.
    """
    config = locate_database(conf)
    if config.kind != "slurmdbd":
        return
    if user != "root":
        address = config.addresses[0]
        with connect_address(address, timeout=config.message_timeout_seconds, owners=config.owners()) as database:
            for _ in range(ATTEMPTS):
                edit = account_edit(database.call(GetBook(), Book), config.cluster_name, user)
                if edit is None or not database.call(edit, BookEdited).stale:
                    break
    query = ListFairShares(users=(user,))
    while not any(row.user == user for row in controller.call(query, FairShares).rows):
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)


def account_edit(book: Book, cluster: str, user: str) -> EditBook | None:
    """The edit that gives the user an account; None if there is nothing to do, or the cluster is not known yet."""
    associations = [association for association in book.associations if association.cluster == cluster]
    if not associations or any(association.user == user for association in associations):
        return None
    name = user.lower()
    puts: list[Account | User | Association] = []
    if not any(account.name == name for account in book.accounts):
        puts.append(Account(name=name, description=name, organization=name))
    if not any(known.name == user for known in book.users):
        puts.append(User(name=user))
    if not any(association.account == name and not association.user for association in associations):
        puts.append(Association(id=-1, cluster=cluster, account=name, parent="root"))
    puts.append(Association(id=-2, cluster=cluster, account=name, user=user, is_default=True))
    return EditBook(version=book.version, puts=tuple(puts))
