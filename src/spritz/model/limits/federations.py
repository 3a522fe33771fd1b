"""Federations in accounting's book: which clusters are in them, under which numbers. Pure.

Source: sacctmgr(1) SPECIFICATIONS FOR FEDERATION; the Slurm Federated Scheduling Guide; numbers and states as 22.05
gives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.limits.records import FederationMember

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.limits.records import Book

#: clusters in a federation: job ids have six bits for the cluster's number
CLUSTERS_MAX = 63

STATES = ("ACTIVE", "INACTIVE", "DRAIN", "DRAIN+REMOVE")

#: the one that a cluster can have: the others say which siblings a job gets, and it gets none
STATE = STATES[0]

#: what slurmdbd keeps in place of a state: FedStateRaw
RAW_STATES = {"": 0, STATE: 1}


def member_of(book: Book, cluster: str) -> FederationMember:
    """How the cluster stands; of one that was never in a federation, a record that says so."""
    for member in book.federation_members:
        if member.cluster == cluster:
            return member
    return FederationMember(cluster=cluster)


def members_of(members: Iterable[FederationMember], federation: str) -> list[FederationMember]:
    """The federation's clusters, by number."""
    found = (member for member in members if federation and member.federation == federation)
    return sorted(found, key=lambda member: member.number)


def joined(book: Book, clusters: Iterable[str], federation: str) -> list[FederationMember]:
    """The records of these clusters in the federation; each that was not in it has the lowest free number, ACTIVE.

    With federation "" they leave the one that they are in. A number past `CLUSTERS_MAX` is refused by the book's rules.
    """
    taken = {member.number for member in members_of(book.federation_members, federation)}
    made: list[FederationMember] = []
    for cluster in clusters:
        member = member_of(book, cluster)
        if not federation:
            made.append(replace(member, federation="", number=0, state=""))
        elif member.federation != federation:
            number = next(number for number in range(1, CLUSTERS_MAX + 2) if number not in taken)
            taken.add(number)
            made.append(replace(member, federation=federation, number=number, state=STATE))
    return made
