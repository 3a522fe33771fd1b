"""`update`, `create` and `delete`: which entity a line is about. Source: scontrol(1) update, create, delete."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from spritz.cli.administration.control.pairs import split

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session

#: key that names the entity, letters needed, module that updates it, or why it is refused
_ENTITIES: tuple[tuple[str, int, str, str], ...] = (
    ("nodename", 3, "update.node", ""),
    ("partitionname", 3, "update.partition", ""),
    ("jobid", 3, "update.job", ""),
    ("jobname", 3, "update.job", ""),
    ("stepid", 4, "update.step", ""),
    ("reservationname", 3, "reservation", ""),
    ("slurmctlddebug", 10, "", "use `scontrol setdebug LEVEL`"),
    ("suspendexcnodes", 15, "update.power", ""),
    ("suspendexcparts", 15, "update.power", ""),
    ("suspendexcstates", 16, "update.power", ""),
    ("frontendname", 5, "", "front ends were removed from Slurm"),
)


def entity_of(words: list[str]) -> tuple[str, str] | None:
    """(module, why refused) of the first word that names an entity."""
    for word in words:
        key = split(word)[0].lower()
        for name, least, module, why in _ENTITIES:
            if len(key) >= least and name.startswith(key):
                return module, why
    return None


def update(session: Session, words: list[str]) -> int:
    """`scontrol update KEY=VALUE…`: the first key that names an entity decides which one is changed."""
    entity = entity_of(words)
    if entity is None:
        session.say("No valid entity in update command")
        session.say('Input line must include "NodeName", "PartitionName", "Reservation", "JobId", or "SlurmctldDebug"')
        return 1
    module, why = entity
    if why:
        session.context.error(f"this update is not supported by Spritz: {why}")
        return 1
    status: int = import_module(f"spritz.cli.administration.control.{module}").run(session, words)
    return status


def create(session: Session, words: list[str]) -> int:
    """`scontrol create [ENTITY] KEY=VALUE…`: a partition, node or reservation, as the first key says."""
    named = words[0].lower() if words[0].lower() in ("partition", "reservation", "node") else ""
    words = words[1:] if named else words
    if named == "partition" and entity_of(words) is None:
        session.context.error("Invalid input: partition  Request aborted")
        return 1
    entity = ("reservation", "") if named == "reservation" else entity_of(words)
    if entity is None and "=" not in words[0]:
        session.context.error(f"Invalid creation entity: {words[0]}")
        return 1
    if entity is None:
        session.say("No valid entity in create command")
        session.say('Input line must include either "Reservation" or "Partition"')
        return 1
    module, why = entity
    if module == "reservation":
        from spritz.cli.administration.control import reservation

        return reservation.create(session, words)
    if module == "update.node":
        from spritz.cli.administration.control import nodes

        return nodes.create(session, words)
    if module != "update.partition":
        session.context.error(f"this creation is not supported by Spritz: {why or 'such a thing is not made by hand'}")
        return 1
    from spritz.cli.administration.control.update import partition

    return partition.create(session, words)


def delete(session: Session, words: list[str]) -> int:
    """`scontrol delete ENTITY=ID`, or `delete ENTITY ID`."""
    word = words[0]
    key, name = split(word)
    lower = key.lower()
    if len(words) == 2 and not name:
        name = words[1]  # `delete reservation NAME`
    elif not name and lower != "node":
        session.context.error("Proper format is 'delete <ENTITY>=<ID>' or 'delete <ENTITY> <ID>'")
        return 1
    elif len(words) == 2:
        session.say("too many arguments for keyword:delete")
        return 1
    if len(lower) >= 3 and "partitionname".startswith(lower):
        from spritz.cli.administration.control.update import partition

        return partition.delete(session, word, name)
    if len(lower) >= 3 and "reservationname".startswith(lower):
        from spritz.cli.administration.control import reservation

        return reservation.delete(session, word, name)
    if len(lower) >= 3 and "nodename".startswith(lower):
        from spritz.cli.administration.control import nodes

        return nodes.delete(session, name)
    session.say(f"Invalid deletion entity: {word}")
    return 1
