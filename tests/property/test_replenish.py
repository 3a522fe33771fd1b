"""Nodes of reservations are replaced as soon as they can be, although an event is compared with the nodes that it names
alone.

The oracle tries all nodes for all reservations after every command, with no memory of what it tried before.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spritz.core.decide.reservations.replenish import AGAIN_SECONDS
from spritz.core.decide.reservations.reserve import candidates
from spritz.core.state import State
from spritz.model.commands.cluster import ApplyPlan, UpdateNode, UpdatePartition
from spritz.model.commands.job import UpdateJob
from spritz.model.commands.reservation import CreateReservation, DeleteReservation, ReservationRequest
from spritz.model.job.job_filter import JobTarget
from spritz.model.node.reservation import Reservation
from spritz.model.plan import Plan, PlannedStart
from spritz.model.resources import Allocation
from spritz.model.rules.availability import takes_jobs
from spritz_testing.builders import World

NODES = 4

COMMANDS = 40


def drawn(random: Random) -> tuple[Any, ...]:
    """A command and its arguments."""
    place, name = random.randrange(20), random.choice("rst")
    flags: tuple[str, ...] = random.choice(((), ("REPLACE",), ("REPLACE_DOWN",), ("STATIC",), ("IGNORE_JOBS",)))
    return random.choice(
        (
            ("reserve", name, random.randint(1, 3), flags, random.choice((0.0, 600.0))),
            ("delete", name),
            ("start", place, random.choice((None, 5, 60)), random.random() < 0.6),
            ("start", place, random.choice((None, 5, 60)), False),
            ("end", place),
            ("gone", place),
            ("limit", place, random.choice((5, 60))),
            ("node", place, random.choice(("DRAIN", "DOWN", "RESUME"))),
            ("lose", place),
            ("register", place),
            ("partition", random.randint(2, NODES)),
            ("wait", random.choice((1.0, 300.0))),
        )
    )


def lacks_needlessly(state: State, reservation: Reservation, now: float) -> list[str]:
    """Nodes that should have replaced others of the reservation."""
    flags = set(reservation.flags)
    if reservation.cpus or not reservation.nodes or flags & {"SPEC_NODES", "ALL_NODES"}:
        return []
    if "STATIC" in flags and not flags & {"REPLACE", "REPLACE_DOWN"}:
        return []

    def serves(name: str) -> bool:
        free = "REPLACE" not in flags or not reservation.active(now) or not state.uses[name].jobs
        return name in state.nodes and takes_jobs(state.nodes[name]) and free

    if all(map(serves, reservation.nodes)):
        return []
    others = candidates(state, reservation, now, whole=True)
    return [node.name for node in others if node.name not in reservation.nodes and serves(node.name)]


def carry_out(world: World, command: tuple[Any, ...]) -> None:
    jobs = [job_id for job_id in world.state.running if not world.state.jobs[job_id].flags]
    match command:
        case ("reserve", name, count, flags, delay):
            request = ReservationRequest(
                name=name,
                users=("alice",),
                node_count=count,
                start_at=world.now + delay,
                duration_seconds=1800.0,
                flags=flags,
            )
            world.do(CreateReservation(request=request))
        case ("delete", name):
            world.do(DeleteReservation(name=name))
        case ("start", place, limit, inside):
            node, name = world.names[place % NODES], ""
            held = [item for item in world.state.reservations.values() if item.nodes and item.active(world.now)]
            if held and inside:
                name, names = held[place % len(held)].name, held[place % len(held)].nodes
                node = names[place % len(names)]
            job_id = world.submit(reservation=name, time_limit_minutes=limit)
            start_in(world, job_id, node, name)
        case ("end", place) if jobs:
            world.finished(jobs[place % len(jobs)], gone=False)
        case ("gone", place) if world.state.completing:
            gone = list(world.state.completing)
            world.gone(gone[place % len(gone)])
        case ("limit", place, minutes) if jobs:
            target = JobTarget(jobs[place % len(jobs)])
            world.do(UpdateJob(target=target, changes={"time_limit_minutes": minutes}))
        case ("node", place, state):
            world.do(UpdateNode(names=(world.names[place % NODES],), state=state, reason="test"))
        case ("lose", place):
            world.lose(world.names[place % NODES])
        case ("register", place):
            world.register(world.names[place % NODES])
        case ("partition", count):
            world.do(UpdatePartition(name="debug", changes={"nodes": list(world.names[:count])}))
        case ("wait", seconds):
            world.now += seconds
            world.tick()


def start_in(world: World, job_id: int, node: str, reservation: str) -> None:
    allocation = Allocation(partition="debug", nodes=(world.free_share(node, 1),), reservation=reservation)
    world.do(ApplyPlan(plan=Plan(starts=(PlannedStart(job_id=job_id, allocation=allocation),))))


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_no_node_that_could_replace_another_is_left_out(seed: int) -> None:
    world, random = World(nodes=NODES), Random(seed)
    for _ in range(COMMANDS):
        command = drawn(random)
        carry_out(world, command)
        # Changes of reservations and partitions, and time alone, are looked at with later events, a reservation each;
        # all others at once.
        wide = command[0] in ("reserve", "delete", "partition", "wait")
        for _ in range(len(world.state.reservations) if wide else 0):
            world.now += AGAIN_SECONDS / 10
            world.register(world.names[0])
        for reservation in world.state.reservations.values():
            left_out = lacks_needlessly(world.state, reservation, world.now)
            assert not left_out, f"{command}: {reservation.name} has {reservation.nodes}, and could have {left_out}"
    world.check()
