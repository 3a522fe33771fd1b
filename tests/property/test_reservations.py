"""Whatever happens, no job outside of a reservation runs on its CPUs during its time, and none of it anywhere else."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, spec

from spritz.model.commands.cluster import Tick, UpdateNode
from spritz.model.commands.reservation import CreateReservation, DeleteReservation, ReservationRequest
from spritz.model.job.record import EndSignal
from spritz.model.node.reservation import Reservation, leaving_seconds
from spritz.model.resources import mask_of

MINUTE = 60.0
LICENSES = 4
SITE = structs.replace(SETTINGS, licenses=(("matlab", LICENSES), ("idl", 1)))
SIGNALS = [None, None, *(EndSignal(signal=10, seconds=seconds, reservation=True) for seconds in (0, 60, 90))]
FLAGS = st.sets(st.sampled_from(["MAINT", "OVERLAP", "HOURLY", "DAILY", "FLEX", "MAGNETIC"]), max_size=2)


@st.composite
def requests(draw: st.DrawFn, name: str, now: float) -> ReservationRequest:
    place = draw(st.sampled_from(["nodes", "count", "cores", "gpus", "gpus each", "licenses"]))
    flags = draw(FLAGS) | ({"ANY_NODES"} if place == "licenses" else set())
    if place in ("count", "licenses") and draw(st.booleans()):
        flags |= {draw(st.sampled_from(["REPLACE", "REPLACE_DOWN", "STATIC"]))}
    return ReservationRequest(
        name=name,
        start_at=now + draw(st.integers(0, 40)) * MINUTE,
        duration_seconds=draw(st.integers(1, 50)) * MINUTE,
        nodes=("n1", "n3") if place == "nodes" else None,
        node_count=draw(st.integers(1, 2)) if place in ("count", "gpus each") else None,
        gres=(("gpu", "", draw(st.integers(1, 4))),) if place == "gpus" else None,
        gres_per_node=(("gpu", "", draw(st.integers(1, 2))),) if place == "gpus each" else None,
        licenses=(("matlab", draw(st.integers(1, 3))),) if place == "licenses" or draw(st.booleans()) else None,
        core_counts=(draw(st.integers(1, 6)),) if place == "cores" else None,
        users=(draw(st.sampled_from(["alice", "bob"])),),
        max_start_delay_seconds=draw(st.sampled_from([None, None, 60])),
        flags=tuple(sorted(flags)),
    )


def check(site: Site) -> None:
    state = site.machine.state
    for job_id in state.running:
        job = state.jobs[job_id]
        assert job.allocation is not None
        mine = state.reservations.get(job.allocation.reservation)
        for share in job.allocation.nodes:
            cpus = mask_of(share.cpus)
            for name in state.reserved.get(share.node, ()):
                other = state.reservations[name]
                mask = other.mask_on(share.node)
                taken = mask is None or bool(mask & cpus)
                devices = other.devices_on(share.node)
                taken = taken or any(mask_of(gres.indexes) & devices.get(gres.name, 0) for gres in share.gres)
                guest = other.lets_in(leaving_seconds(job.spec))
                if taken and other.active(site.now) and not guest and not other.gives_way_to(mine):
                    raise AssertionError(f"job {job_id} of {mine} runs on {share.node} in the time of {other}")
            if mine is not None and not mine.flexible and mine.nodes and not moves(mine):
                assert share.node in mine.nodes
                own = mine.mask_on(share.node)
                assert own is None or not cpus & ~own
                devices = mine.devices_on(share.node)
                assert not any(mask_of(gres.indexes) & ~devices.get(gres.name, -1) for gres in share.gres)
    check_licenses(site)


def moves(reservation: Reservation) -> bool:
    """Nodes that its jobs use are replaced."""
    return "REPLACE" in reservation.flags


def check_licenses(site: Site) -> None:
    """No more are in use than there are, and those that are reserved are there for its jobs."""
    state = site.machine.state
    running = [state.jobs[job_id] for job_id in state.running]
    assert sum(dict(job.licenses).get("matlab", 0) for job in running) <= LICENSES
    for reservation in state.reservations.values():
        if not reservation.licenses or not reservation.active(site.now):
            continue
        strict = [
            job
            for job in running
            if job.allocation is not None
            and not reservation.gives_way_to(state.reservations.get(job.allocation.reservation))
        ]
        others = sum(dict(job.licenses).get("matlab", 0) for job in strict)
        assert others <= LICENSES - dict(reservation.licenses)["matlab"]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_job_outside_of_a_reservation_runs_inside_it(data: st.DataObject) -> None:
    site = Site([node(f"n{number}", 4, gres=[gpus(2)]) for number in range(1, 4)], settings=SITE)
    made = 0
    for _ in range(data.draw(st.integers(3, 14))):
        action = data.draw(st.sampled_from(["reserve", "submit", "submit", "het", "wait", "end", "delete", "down"]))
        names = sorted(site.machine.state.reservations)
        if action == "reserve":
            made += 1
            send(site, CreateReservation(request=data.draw(requests(f"r{made}", site.now))))
        elif action == "delete" and names:
            send(site, DeleteReservation(name=data.draw(st.sampled_from(names))))
        elif action == "submit":
            user = data.draw(st.sampled_from(["alice", "bob"]))
            inside = data.draw(st.sampled_from(["", *names])) if names else ""
            nodes = data.draw(st.integers(1, 3))
            site.submit(
                spec(
                    nodes * data.draw(st.integers(1, 4)),
                    nodes,
                    user=user,
                    reservation=inside,
                    time_limit_minutes=data.draw(st.integers(1, 90)),
                    gpus_per_node=data.draw(st.sampled_from([(), (), 1, 2])),
                    licenses=data.draw(st.sampled_from(["", "", "matlab", "matlab:2", "matlab|idl"])),
                    end_signal=data.draw(st.sampled_from(SIGNALS)),
                )
            )
        elif action == "het":
            components: list[dict[str, Any]] = [
                {"user": "bob", "end_signal": data.draw(st.sampled_from(SIGNALS))} for _ in range(2)
            ]
            minutes = data.draw(st.integers(1, 90))
            site.submit_het(
                *(
                    spec(data.draw(st.integers(1, 4)), 1, time_limit_minutes=minutes, **component)
                    for component in components
                )
            )
        elif action == "end" and site.machine.state.running:
            site.end(data.draw(st.sampled_from(sorted(site.machine.state.running))))
        elif action == "down":
            name = data.draw(st.sampled_from(["n1", "n2", "n3"]))
            idle = not site.machine.state.uses[name].jobs
            flags = site.machine.state.nodes[name].flags
            if idle:
                send(site, UpdateNode(names=(name,), state="RESUME" if flags else "DRAIN", reason="x"))
        elif action == "wait":
            pass_time(site, data.draw(st.integers(1, 60)) * MINUTE)
        site.cycle()
        check(site)


def send(site: Site, command: Struct) -> None:
    site.projection.follow(site.machine.handle(command, site.now).changes)


def pass_time(site: Site, seconds: float) -> None:
    """To every deadline on the way, as the controller would."""
    end = site.now + seconds
    while True:
        due = site.machine.next_deadline()
        if due is None or due > end:
            break
        site.now = max(site.now, due)
        send(site, Tick())
        # Nodes answer at once.
        for job_id in list(site.machine.state.completing):
            for name in site.jobs[job_id].completing:
                site.gone(job_id, name)
        after = site.machine.next_deadline()
        assert after is None or after > site.now, "time stands still"
        site.cycle()
        check(site)
    site.now = end
