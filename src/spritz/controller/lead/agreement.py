"""The settings that the controllers of a cluster must have in common: the cluster's key, and the hosts and nodes of
slurm.conf.

The controller that leads stores hashes of both next to the journal, and each standby compares its own with them. With
another key a standby would take over, be refused by every node, and end the jobs there as lost while they run. With
other nodes in slurm.conf it would end the jobs on nodes that it does not know. The first is an error, because that
controller can never lead; the second is reported, because slurm.conf is read again before a standby leads.

The record names its term: another record is that of an earlier leader, or of a release that wrote none, and is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from spritz.controller.journal.contract import JournalError, content_key
from spritz.runtime.worker import Worker

if TYPE_CHECKING:
    from spritz.client.trust.membership import Membership
    from spritz.controller.configuration import Configuration
    from spritz.controller.journal.postgresql import PostgresJournal
    from spritz.runtime.log import Logger

#: Name of the record next to the journal.
RECORD = "leader.json"


class Agreement(Struct, frozen=True, kw_only=True):
    """The hashes of one controller. `keys`: of all keys of the cluster that it has, which are several while the key is
    replaced; empty on a cluster of one machine. `settings`: by the key of slurm.conf.
    """

    term: int = 0
    keys: tuple[str, ...] = ()
    settings: dict[str, str] = {}

    def has_other_key(self, leader: Agreement) -> bool:
        """Whether no machine could trust both this controller and the leader."""
        return bool(self.keys and leader.keys) and not set(self.keys) & set(leader.keys)

    def other_settings(self, leader: Agreement) -> list[str]:
        """Keys of slurm.conf in which the leader's file differs; those that only one of the two releases knows do not
        count.
        """
        common = self.settings.keys() & leader.settings.keys()
        return sorted(key for key in common if self.settings[key] != leader.settings[key])


def agreement_of(configuration: Configuration, membership: Membership | None, term: int = 0) -> Agreement:
    """The hashes of this controller."""
    values = {
        "SlurmctldHost": [f"{host.name}({host.address})" for host in configuration.loaded.settings.hosts],
        "SlurmctldPort": list(map(str, configuration.ports)),
        "SlurmUser": [configuration.settings.slurm_user],
        "NodeName": sorted(node.name for node in configuration.nodes),
        "PartitionName": sorted(partition.name for partition in configuration.partitions),
    }
    return Agreement(
        term=term,
        keys=() if membership is None else membership.fingerprints,
        settings={key: content_key("\n".join(words).encode()) for key, words in values.items()},
    )


async def record(
    journal: PostgresJournal, configuration: Configuration, membership: Membership | None, log: Logger
) -> None:
    """Store the hashes of this controller, which leads."""
    agreement = msgspec.json.encode(agreement_of(configuration, membership, journal.term))
    try:
        await Worker("agreement").run(journal.keep, RECORD, agreement)
    except JournalError as error:  # standbys compare nothing then; the lease decides who leads
        # No reason to end: a leader that cannot write at all loses its lease, and ends by that.
        log.error("leader.not_recorded", error=error.message)


def decoded(record: bytes | None) -> Agreement | None:
    """The stored record; None if there is none that this release can read."""
    try:
        return None if record is None else msgspec.json.decode(record, type=Agreement)
    except msgspec.MsgspecError:
        return None
