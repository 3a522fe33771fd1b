"""`show ENTITY [ID]`: which entities there are, and where each is shown. Source: scontrol(1) show."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.cli.administration.control.session import Session


class Entity:
    """`at` is `module:function` in `administration.control`; `least` letters are needed.

    `refused` says why it is not built; `json`: it is shown as JSON and YAML too.
    """

    __slots__ = ("at", "json", "least", "refused")

    def __init__(self, at: str = "", least: int = 3, refused: str = "", *, json: bool = False) -> None:
        self.at = at
        self.least = least
        self.refused = refused
        self.json = json


#: in the order in which shortened words are tried
ENTITIES: dict[str, Entity] = {
    "aliases": Entity("show.node:aliases"),
    "assoc_mgr": Entity("show.assoc_mgr:show"),
    "bbstat": Entity(refused="burst buffers are not built"),
    "burstbuffer": Entity(refused="burst buffers are not built"),
    "cache": Entity("show.assoc_mgr:show"),
    "config": Entity("show.config:config"),
    "daemons": Entity("show.config:daemons"),
    "dwstat": Entity(refused="burst buffers are not built"),
    "federation": Entity("show.federation:show"),
    "frontend": Entity(refused="front ends were removed from Slurm"),
    "hostlist": Entity("names:hostlist", 5),
    "hostlistsorted": Entity("names:hostlist_sorted", 9),
    "hostnames": Entity("names:hostnames", 5),
    "jobs": Entity("show.job:run", 1, json=True),
    "licenses": Entity("show.config:licenses", 1, json=True),
    "nodes": Entity("show.node:run", 1, json=True),
    "partitions": Entity("show.partition:run", 1, json=True),
    "reservations": Entity("reservation:show", 3, json=True),
    "slurmd": Entity("this_node:show_slurmd"),
    "steps": Entity("show.step:run", 2, json=True),
    "topology": Entity("show.config:topology"),
    "topoconf": Entity("show.topology:configuration"),
}

_KEYS = {"jobid": "jobs", "partitionname": "partitions", "reservationname": "reservations"}


def run(session: Session, words: list[str]) -> int:
    """`scontrol show ENTITY [ID]`, where `ENTITY=ID` means the same. Returns the exit status."""
    name, equals, value = words[0].partition("=")  # `show job=7` is `show job 7`
    operands = [value, *words[1:]] if equals else words[1:]
    lower = name.lower()
    # What a record calls itself names its kind too: `show ReservationName=r1`.
    lower = _KEYS.get(lower, lower)
    entity = ENTITIES.get(lower) or ENTITIES.get(lower + "s")
    if entity is None:
        entity = next(
            (
                candidate
                for known, candidate in ENTITIES.items()
                if len(lower) >= candidate.least and known.startswith(lower)
            ),
            None,
        )
    if entity is None:
        session.say(f"invalid entity:{name} for keyword:show ")
        return 1
    if len(words) > 2 and entity not in (ENTITIES["topology"], ENTITIES["assoc_mgr"]):
        session.say("too many arguments for keyword:show")
        return 1
    if entity.refused:
        session.context.error(f"show {lower} is not supported by Spritz: {entity.refused}")
        return 1
    if session.json is not None and not entity.json:
        option = "--yaml" if session.json.startswith("yaml=") else "--json"
        session.context.error(f"{option} is not supported by Spritz for show {lower}")
        return 1
    name, _, function = entity.at.partition(":")
    module = import_module(f"spritz.cli.administration.control.{name}")
    show: Callable[[Session, list[str]], int] = getattr(module, function)
    return show(session, operands)
