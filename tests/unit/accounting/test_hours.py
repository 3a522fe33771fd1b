"""What an hour of a cluster is divided into. Source: sreport(1) REPORT DESCRIPTION."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from spritz.accounting.rollup.hours import ClusterHour, Holder, Pairs, Used, Window
from spritz.model.accounting.records import NodeEventRecord, ReservationRecord

HOUR = 3600
ANN = Holder("physics", "ann")
EACH: Pairs = (("cpu", 4), ("mem", 1000))


def whole(**more: Any) -> NodeEventRecord:
    """Two nodes of four CPUs."""
    return NodeEventRecord(place=1, nodes="n[1-2]", tres="cpu=8,mem=2000M,node=2", **more)


def trouble(state: str, start: int, end: int, node: str = "n1", place: int = 5) -> NodeEventRecord:
    return NodeEventRecord(place=place, node=node, state=state, started_at=float(start), ended_at=float(end))


def job(start: int, end: int, cpus: int = 4, *, waits: int = 0, nodes: str = "n1", **more: Any) -> Used:
    given: dict[str, Any] = {
        "holder": ANN,
        "reservation": "",
        "eligible_at": start - waits,
        "started_at": start,
        "ended_at": end,
        "cpus_asked": cpus,
        "tasks": 1,
        "tres": f"cpu={cpus},mem=500M",
        "nodes": nodes,
    }
    return Used(**(given | more))


def cpus(window: Window, hour: int, found: list[NodeEventRecord], since: int = HOUR) -> ClusterHour:
    by_node = {"n1": EACH, "n2": EACH}
    return next(
        one for one in window.cluster(hour, [whole(started_at=float(since))], found, by_node) if one.tres == "cpu"
    )


def divided(one: ClusterHour) -> tuple[int, int, int, int, int, int]:
    assert one.allocated + one.down + one.planned_down + one.idle + one.planned == 8 * HOUR
    return one.allocated, one.down, one.planned_down, one.idle, one.planned, one.over


def test_a_draining_node_is_down_when_its_last_job_has_left_it() -> None:
    """And not before; and a job that comes when it is back says nothing about that."""
    window = Window([HOUR, 2 * HOUR, 3 * HOUR])
    found = [trouble("IDLE", HOUR, 2 * HOUR)]
    window.watch(found)
    window.add(job(HOUR, HOUR + 1800))
    window.add(job(2 * HOUR + 600, 3 * HOUR))
    assert divided(cpus(window, HOUR, found))[:2] == (4 * 1800, 4 * 1800)
    assert divided(cpus(window, 2 * HOUR, found))[:2] == (4 * 3000, 0)


def test_a_node_that_is_down_in_its_maintenance_is_that_alone() -> None:
    window = Window([HOUR, 2 * HOUR])
    kept = ReservationRecord(
        number=1,
        reservation_id=1,
        name="m",
        started_at=float(HOUR),
        ended_at=float(2 * HOUR),
        nodes="n1",
        tres="cpu=4,mem=1000M",
        flags="MAINT",
    )
    window.reserve(kept, [])
    found = [trouble("DOWN", HOUR, 2 * HOUR)]
    window.watch(found)
    assert divided(cpus(window, HOUR, found)) == (0, 0, 4 * HOUR, 4 * HOUR, 0, 0)


def test_what_waits_takes_what_is_free_and_the_rest_is_too_much() -> None:
    window = Window([HOUR, 2 * HOUR])
    window.add(job(HOUR, 2 * HOUR))
    window.add(job(3 * HOUR, 4 * HOUR, 10, waits=2 * HOUR))
    assert divided(cpus(window, HOUR, [])) == (4 * HOUR, 0, 0, 0, 4 * HOUR, 6 * HOUR)


def test_pending_tasks_of_an_array_wait_each_for_itself() -> None:
    window = Window([HOUR, 2 * HOUR])
    window.add(job(0, 0, 2, eligible_at=HOUR + 1800, tasks=3, tres="", nodes=""))
    assert divided(cpus(window, HOUR, [])) == (0, 0, 0, 8 * HOUR - 6 * 1800, 6 * 1800, 0)


def test_more_than_there_is_is_never_told() -> None:
    """Shared CPUs, a node that is said to be down under a job, and a reservation besides."""
    window = Window([HOUR, 2 * HOUR])
    for _ in range(3):
        window.add(job(HOUR, 2 * HOUR))
    assert divided(cpus(window, HOUR, [trouble("DOWN", HOUR, 2 * HOUR)])) == (8 * HOUR, 0, 0, 0, 0, 0)


def test_a_suspended_job_gives_up_its_cpus_and_nothing_else() -> None:
    window = Window([HOUR, 2 * HOUR])
    window.add(job(HOUR, 2 * HOUR, suspended=((HOUR + 600, HOUR + 1200),)))
    assert window.holders(HOUR) == {ANN: {"cpu": 4 * 3000, "mem": 500 * HOUR}}


def test_unused_reserved_time_is_charged_in_equal_parts() -> None:
    window = Window([HOUR, 2 * HOUR])
    kept = ReservationRecord(
        number=1,
        reservation_id=1,
        name="r",
        started_at=float(HOUR),
        ended_at=float(2 * HOUR),
        nodes="n1",
        tres="cpu=4",
    )
    bob = Holder("physics", "bob")
    window.reserve(kept, [ANN, bob])
    window.add(job(HOUR, HOUR + 1800, reservation="r", tres="cpu=4"))
    assert window.holders(HOUR) == {ANN: {"cpu": 4 * 1800 + 2 * 1800}, bob: {"cpu": 2 * 1800}}
    assert divided(cpus(window, HOUR, []))[0] == 4 * HOUR


def record(number: int, start: int, end: int) -> ReservationRecord:
    return ReservationRecord(
        number=number,
        reservation_id=1,
        name="r",
        started_at=float(start),
        ended_at=float(end),
        nodes="n[1-2]",
        tres="cpu=8,mem=1000M",
    )


def test_a_reservation_that_changed_within_an_hour_is_charged_once() -> None:
    """Its records share the hour, and a job's use belongs to the record of its time."""
    window = Window([HOUR, 2 * HOUR])
    for number, (start, end) in enumerate(((HOUR, HOUR + 600), (HOUR + 600, 2 * HOUR))):
        window.reserve(record(number, start, end), [ANN])
    window.add(job(HOUR, 2 * HOUR, cpus=8, reservation="r", tres="cpu=8"))
    assert window.holders(HOUR)[ANN]["cpu"] == 8 * HOUR


@pytest.mark.parametrize("seed", range(40))
def test_reserved_time_is_counted_as_minute_by_minute(seed: int) -> None:
    """Reservations changed at any minute, jobs before, in and after them, suspensions, an hour of 30 minutes."""
    draw = random.Random(seed)
    bounds = [HOUR, 2 * HOUR, 2 * HOUR + 1800, 2 * HOUR + 1800 + HOUR]

    def minute() -> int:
        return draw.randrange(HOUR - 1800, bounds[-1] + 1800, 60)

    window = Window(bounds)
    cuts = sorted({minute() for _ in range(draw.randint(2, 6))})
    records = [record(number, *span) for number, span in enumerate(itertools.pairwise(cuts))]
    for kept in records:
        window.reserve(kept, [ANN])
    bob = Holder("physics", "bob")
    jobs = []
    for _ in range(draw.randint(0, 4)):
        start, end = sorted((minute(), minute()))
        pause = tuple(sorted((draw.randrange(start, end + 60, 60), draw.randrange(start, end + 60, 60))))
        suspended = (pause,) if draw.random() < 0.5 else ()
        jobs.append(job(start, end, 1, reservation="r", tres="cpu=1,mem=100M", holder=bob, suspended=suspended))
        window.add(jobs[-1])
    for hour, after in itertools.pairwise(bounds):
        used = {"cpu": 0, "mem": 0}
        unused = {"cpu": 0, "mem": 0}
        for kept in records:
            inside = {"cpu": 0, "mem": 0}
            reserved = {"cpu": 0, "mem": 0}
            for at in range(max(hour, int(kept.started_at)), min(after, int(kept.ended_at)), 60):
                reserved["cpu"] += 8 * 60
                reserved["mem"] += 1000 * 60
                for each in jobs:
                    if each.started_at <= at < each.ended_at:
                        inside["mem"] += 100 * 60
                        inside["cpu"] += 60 * (not any(low <= at < high for low, high in each.suspended))
            for name in unused:
                unused[name] += max(0, reserved[name] - inside[name])
        for at in range(hour, after, 60):
            for each in jobs:
                if each.started_at <= at < each.ended_at:
                    used["mem"] += 100 * 60
                    used["cpu"] += 60 * (not any(low <= at < high for low, high in each.suspended))
        charged = window.holders(hour)
        assert {name: charged.get(bob, {}).get(name, 0) for name in used} == used
        assert {name: charged.get(ANN, {}).get(name, 0) for name in unused} == unused
