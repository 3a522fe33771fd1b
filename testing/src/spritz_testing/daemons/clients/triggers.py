"""Triggers: programs of the site that the controller runs when a job ends or a node goes down (strigger)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.commands.job import Done
from spritz.model.triggers import SetTrigger
from spritz_testing.daemons.history import Fired
from spritz_testing.daemons.plan import Action
from spritz_testing.daemons.wanted import Triggered

if TYPE_CHECKING:
    from random import Random

    from spritz_testing.daemons.clients.command import Command, Data
    from spritz_testing.daemons.clients.users import Users
    from spritz_testing.daemons.plan import Scale
    from spritz_testing.daemons.system.world import Process

#: Programs of triggers; the name of the trigger follows.
_PROGRAM = "/site/trigger/"

#: Events of nodes that are drawn.
_NODE_EVENTS = ("down", "drained", "up")


def set_trigger(command: Command, data: Data) -> None:
    """strigger --set, on the end of a job (`data["tag"]`) or on a node."""
    job_id = command.users.job_id(data["tag"]) if "tag" in data else 0
    request = SetTrigger(
        events=(data["event"],),
        program=_PROGRAM + data["name"],
        job_id=job_id,
        nodes=data.get("node", "*"),
        offset_seconds=data.get("offset_seconds", 0),
    )
    wanted = Triggered(name=data["name"], event=data["event"], offset_seconds=request.offset_seconds)
    command.ask("set_trigger", request, Done, job_id=job_id, wanted=wanted)


def watch(users: Users) -> None:
    """Note in the history which programs of triggers are started."""

    def started(process: Process, path: str) -> None:
        if path.startswith(_PROGRAM):
            name = path.removeprefix(_PROGRAM)
            users.history.add(Fired(at=users.world.now, host=process.host.name, name=name))
            users.world.count("trigger fired")

    users.world.on_program = started


def draw(random: Random, scale: Scale) -> list[Action]:
    """A few in each run: most on the ends of jobs, which are easiest to judge."""
    actions = []
    for number in range(random.randint(2, 6)):
        at = random.uniform(5.0, scale.busy_seconds)
        data = {"name": f"t{number}", "offset_seconds": random.choice((0, 0, 30))}
        if random.random() < 0.7:
            submitted = int(scale.jobs * at / scale.busy_seconds)  # about so many: of the last ones some still run
            data |= {"event": "fini", "tag": f"j{max(0, submitted - random.randrange(5))}"}
        else:
            data |= {"event": random.choice(_NODE_EVENTS), "node": f"n{random.randint(1, scale.nodes)}"}
        actions.append(Action(at=round(at, 6), kind="set_trigger", target="root", data=data))
    return actions
