"""Federations in accounting's book: which clusters are in them, and their numbers. Pure.

Source: sacctmgr(1) SPECIFICATIONS FOR FEDERATION; the Slurm Federated Scheduling Guide; numbers and states as in 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.limits.records import FederationMember

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.limits.records import Book

#: most clusters of a federation: job ids have six bits for the cluster's number
CLUSTERS_MAX = 63

STATES = ("ACTIVE", "INACTIVE", "DRAIN", "DRAIN+REMOVE")

#: the state of a cluster that joins
STATE = STATES[0]

#: the numbers that slurmdbd stores for states: FedStateRaw
RAW_STATES = {"": 0, STATE: 1, "INACTIVE": 2, "DRAIN": 17, "DRAIN+REMOVE": 49}


def member_of(book: Book, cluster: str) -> FederationMember:
    """The cluster's membership; a record with federation "" if it was never in one."""
    for member in book.federation_members:
        if member.cluster == cluster:
            return member
    return FederationMember(cluster=cluster)


def members_of(members: Iterable[FederationMember], federation: str) -> list[FederationMember]:
    """The clusters of `federation` in order of their numbers; none if its name is empty."""
    matching = (member for member in members if federation and member.federation == federation)
    return sorted(matching, key=lambda member: member.number)


def joined(book: Book, clusters: Iterable[str], federation: str) -> list[FederationMember]:
    """The records of these clusters as members of the federation. New members get the lowest free numbers, and ACTIVE.

    With federation "" they leave their federation. The book's rules refuse numbers above `CLUSTERS_MAX`.
    """
    taken = {member.number for member in members_of(book.federation_members, federation)}
    members: list[FederationMember] = []
    for cluster in clusters:
        member = member_of(book, cluster)
        if not federation:
            members.append(replace(member, federation="", number=0, state=""))
        elif member.federation != federation:
            number = next(number for number in range(1, CLUSTERS_MAX + 2) if number not in taken)
            taken.add(number)
            members.append(replace(member, federation=federation, number=number, state=STATE))
    return members
