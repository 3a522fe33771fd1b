"""`show federation`: the federation of this cluster, by slurmdbd. Source: scontrol(1); what 22.05 prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.listings.acct.connect import connected
from spritz.client.locate import locate_database
from spritz.model.limits.federations import member_of, members_of
from spritz.model.limits.records import Book, GetBook

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session
    from spritz.model.limits.records import ClusterRow, FederationMember


def show(session: Session, words: list[str]) -> int:
    """show federation: this cluster first. Nothing for a cluster that is in none."""
    if locate_database().kind != "slurmdbd":
        return 0
    connection, this_cluster = connected(session.context)
    with connection:
        book = connection.call(GetBook(), Book)
    name = member_of(book, this_cluster).federation
    if not name:
        return 0
    rows = {row.name: row for row in book.clusters}
    lines = [f"Federation: {name}"]
    for member in sorted(
        members_of(book.federation_members, name), key=lambda member_row: member_row.cluster != this_cluster
    ):
        row = rows.get(member.cluster)
        if member.cluster == this_cluster:
            lines.append(f"{'Self:':<12}{_described(member, row)}")
        else:
            # Controllers keep no connections to each other: every command asks each of them.
            unconnected = "PersistConnSend/Recv:No/No Synced:No"
            lines.append(f"{'Sibling:':<12}{_described(member, row)} {unconnected}")
    session.out("\n".join(lines) + "\n")
    return 0


def _described(member: FederationMember, row: ClusterRow | None) -> str:
    address = f"{row.host}:{row.port}" if row else ":0"
    return f"{member.cluster}:{address} ID:{member.number} FedState:{member.state} Features:{member.features}"
