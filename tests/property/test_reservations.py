"""Whatever happens, no job outside of a reservation runs on its CPUs during its time, and none of it anywhere else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.scheduling.site import Site, node, spec

from spritz.model.commands.cluster import Tick
from spritz.model.commands.reservation import CreateReservation, DeleteReservation, ReservationRequest
from spritz.model.resources import mask_of

MINUTE = 60.0
FLAGS = st.sets(st.sampled_from(["MAINT", "OVERLAP", "HOURLY", "DAILY", "FLEX", "MAGNETIC"]), max_size=2)


@st.composite
def requests(draw: st.DrawFn, name: str, now: float) -> ReservationRequest:
    place = draw(st.sampled_from(["nodes", "count", "cores"]))
    return ReservationRequest(
        name=name,
        start_at=now + draw(st.integers(0, 40)) * MINUTE,
        duration_seconds=draw(st.integers(1, 50)) * MINUTE,
        nodes=("n1", "n3") if place == "nodes" else None,
        node_count=draw(st.integers(1, 2)) if place == "count" else None,
        core_counts=(draw(st.integers(1, 6)),) if place == "cores" else None,
        users=(draw(st.sampled_from(["alice", "bob"])),),
        flags=tuple(draw(FLAGS)),
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
                if taken and other.active(site.now) and not other.gives_way_to(mine):
                    raise AssertionError(f"job {job_id} of {mine} runs on {share.node} in the time of {other}")
            if mine is not None and not mine.flexible:
                assert share.node in mine.nodes
                own = mine.mask_on(share.node)
                assert own is None or not cpus & ~own


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_job_outside_of_a_reservation_runs_inside_it(data: st.DataObject) -> None:
    site = Site([node(f"n{number}", 4) for number in range(1, 4)])
    made = 0
    for _ in range(data.draw(st.integers(3, 14))):
        action = data.draw(st.sampled_from(["reserve", "submit", "submit", "wait", "end", "delete"]))
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
                )
            )
        elif action == "end" and site.machine.state.running:
            site.end(data.draw(st.sampled_from(sorted(site.machine.state.running))))
        elif action == "wait":
            pass_time(site, data.draw(st.integers(1, 60)) * MINUTE)
        site.cycle()
        check(site)


def send(site: Site, command: CreateReservation | DeleteReservation | Tick) -> None:
    for event in site.machine.handle(command, site.now).events:
        site.projection.apply(event)


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
