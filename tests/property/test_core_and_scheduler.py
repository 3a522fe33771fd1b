"""The core and the scheduler give the same answer, over random clusters, partitions, reservations and jobs.

What the scheduler plans the core starts, as long as nothing has changed in between; a start that the core would accept
on given nodes fits there by what the scheduler knows as well; and its table says of each node what the core's records
say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.property.test_scheduling import node_configs, settings_of
from tests.unit.scheduling.site import Site, partition, spec

from spritz.core.decide.starting.start import start_refusal
from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import ClusterSettings, McsPolicy
from spritz.model.commands.cluster import Configure, Tick, UpdateNode, UpdatePartition
from spritz.model.commands.job import CancelJobs, ResumeJob, SubmitHetJob, SubmitJob, SuspendJob, UpdateJob
from spritz.model.commands.reservation import CreateReservation, DeleteReservation, ReservationRequest
from spritz.model.ids import INFINITE
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import EndSignal, JobSpec, Sharing
from spritz.model.node.record import NodeConfig
from spritz.model.plan import PlannedStart
from spritz.model.resources import Allocation, GresCapacity, GresRequest, NodeAllocation, mask_of
from spritz.model.rules.node_shape import cpu_mask, is_shared, shares_by_device, usable_memory_mib
from spritz.model.states import JobState, PartitionState
from spritz.scheduling.placement.exact import clash
from spritz.scheduling.placement.place import place
from spritz.scheduling.plan.decisions import Cycle
from spritz.scheduling.plan.verdicts import partition_verdict
from spritz.scheduling.view.capacity import open_to, shared_out
from spritz.scheduling.view.changes.waiting_jobs import requests_of
from spritz.scheduling.view.nodes import NodeRow
from spritz.scheduling.view.records import JobRecord
from spritz.scheduling.view.request import Request
from spritz.scheduling.view.snapshot import Snapshot

SPEED = settings(max_examples=35, deadline=None, suppress_health_check=[HealthCheck.too_slow])
DAY = 86_400.0
USERS = {"alice": 1001, "bob": 1002}
TAPES = (GresCapacity(name="tape", type="a", count=2), GresCapacity(name="tape", type="b", count=1))

PARAMETERS: list[tuple[tuple[str, str], ...]] = [
    (),
    (),
    (("bf_licenses", ""),),
    (("bf_policy", "easy"),),
    (("time_min_as_soft_limit", ""),),
]

rarely = st.sampled_from([True, *[False] * 6])
limits_of_partitions = st.fixed_dictionaries(
    {},
    optional={
        "oversubscribe": st.sampled_from(["NO", "NO", "EXCLUSIVE", "FORCE:2", "YES:3"]),
        "exclusive_user": rarely,
        "exclusive_topo": rarely,
        "max_time_minutes": st.sampled_from([INFINITE, INFINITE, 10, 60]),
        "default_time_minutes": st.sampled_from([None, 5, 30, 120]),
        "min_nodes": st.sampled_from([0, 0, 2]),
        "max_nodes": st.sampled_from([INFINITE, INFINITE, 1, 2]),
        "max_cpus_per_node": st.sampled_from([INFINITE, INFINITE, 1, 3]),
        "max_cpus_per_socket": st.sampled_from([INFINITE, INFINITE, 2]),
        "max_memory_mib_per_node": st.sampled_from([0, 0, 3]),
        "max_memory_mib_per_cpu": st.sampled_from([0, 0, 2]),
        "default_memory_mib_per_gpu": st.sampled_from([0, 2]),
        "lln": rarely,
        "state": st.sampled_from([*[PartitionState.UP] * 12, *PartitionState]),
    },
)


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """A cluster with partition `p` of all nodes and `q` of some."""
    configs = [_with_tapes(config, draw(st.booleans())) for config in draw(node_configs())]
    cut = draw(st.integers(1, len(configs)))
    homes = (
        partition("p", configs, nodes_text="ALL", default=True, **draw(limits_of_partitions)),
        partition("q", configs[:cut], priority_tier=draw(st.integers(1, 2)), **draw(limits_of_partitions)),
    )
    return Site(configs, homes, draw(clusters()))


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSettings:
    return structs.replace(
        draw(settings_of),
        gres_types=("gpu", "shard", "tape"),
        licenses=draw(st.sampled_from([(("a", 3), ("b", 1)), (("a", 1), ("b", 1))])),
        mcs=McsPolicy(plugin="label", select=draw(st.sampled_from(["noselect", "ondemandselect", "select"]))),
        power=PowerPolicy(reboots=draw(st.booleans())),
        several_sharing=draw(st.booleans()),
        scheduler_parameters=draw(
            st.sampled_from(
                [(), (), (("bf_licenses", ""),), (("bf_policy", "easy"),), (("time_min_as_soft_limit", ""),)]
            )
        ),
    )


def _with_tapes(config: NodeConfig, tapes: bool) -> NodeConfig:
    if not tapes:
        return config
    capacity = structs.replace(config.capacity, gres=(*config.capacity.gres, *TAPES))
    return structs.replace(config, capacity=capacity)


#: most jobs have one or two of these besides their size
OPTIONS: list[dict[str, Any]] = [
    {"cpus_per_task": 2},
    {"tasks_per_node": 2, "nodes": 1, "tasks": 2},
    {"tasks_per_socket": 1},
    {"sharing": Sharing.EXCLUSIVE},
    {"sharing": Sharing.USER},
    {"sharing": Sharing.USER},
    {"sharing": Sharing.TOPO},
    {"sharing": Sharing.OVERSUBSCRIBE},
    {"sharing": Sharing.OVERSUBSCRIBE},
    {"reboot": True},
    {"overcommit": True},
    {"memory_mib_per_node": 3},
    {"memory_mib_per_node": 0},
    {"memory_mib_per_cpu": 1},
    {"gpus": 1},
    {"gpus_per_node": 1},
    {"gpus_per_node": 1, "gres_flags": ("enforce-binding",)},
    {"tasks_per_gpu": 1, "tasks": 2},
    {"gres_per_node": (GresRequest("shard", "", 3),)},
    {"gres_per_node": (GresRequest("tape", "", 2),)},
    {"gres_per_node": (GresRequest("tape", "a", 1),)},
    {"gres_per_node": (GresRequest("tape", "a", 1), GresRequest("tape", "b", 1))},
    {"licenses": "a"},
    {"licenses": "a:2,b"},
    {"licenses": "a:2|b"},
    {"mcs_label": "red"},
    {"mcs_label": "blue"},
    {"time_min_minutes": 1, "time_limit_minutes": 60},
    {"end_signal": EndSignal(signal=10, seconds=0, reservation=True)},
    {"end_signal": EndSignal(signal=10, seconds=90, reservation=True)},
    {"features": "x"},
    {"node_list": ("n0",)},
    {"exclude": ("n0",)},
    {"contiguous": True},
]


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    """A job of some options, which may be too much for the cluster."""
    user = draw(st.sampled_from(sorted(USERS)))
    fields: dict[str, Any] = {
        "tasks": draw(st.sampled_from([None, 1, 1, 2, 3])),
        "nodes": draw(st.sampled_from([None, None, 1, 2, (1, 3)])),
        "partitions": draw(st.sampled_from([("p",), ("p",), ("q",), ("q", "p")])),
        "user": user,
        "uid": USERS[user],
        "gid": USERS[user],
        "time_limit_minutes": draw(st.sampled_from([None, None, 0, 1, 20, 60, int(400 * DAY // 60)])),
        "reservation": draw(st.sampled_from(["", "", "", "r0", "r1", "r0,r1"])),
    }
    for option in draw(st.lists(st.sampled_from(OPTIONS), max_size=2)):
        if not {"gpus", "gpus_per_node", "tasks_per_gpu"} & option.keys() & fields.keys():
            fields |= option
    return spec(**fields)


@st.composite
def reservations(draw: st.DrawFn) -> dict[str, Any]:
    """Fields of a request except the times, which follow after a number of minutes."""
    place = draw(st.sampled_from(["node", "count", "cores", "gpus", "licenses"]))
    flags = draw(
        st.sets(st.sampled_from(["MAINT", "OVERLAP", "HOURLY", "DAILY", "FLEX", "MAGNETIC", "TIME_FLOAT"]), max_size=2)
    )
    return {
        "name": draw(st.sampled_from(["r0", "r1"])),
        "after": draw(st.sampled_from([0, 0, 5, 30, int(400 * DAY // 60)])),
        "duration_seconds": draw(st.sampled_from([300.0, 1800.0])),
        "nodes": ("n0",) if place == "node" else None,
        "node_count": 1 if place == "count" else None,
        "core_counts": (draw(st.integers(1, 3)),) if place == "cores" else None,
        "gres": (("gpu", "", 1),) if place == "gpus" else None,
        "licenses": (("a", 1),) if place == "licenses" else None,
        "users": draw(st.sampled_from([("alice",), ("bob",), ("alice", "bob"), ("alice", "bob")])),
        "max_start_delay_seconds": draw(st.sampled_from([None, None, 60])),
        "flags": tuple(sorted(flags | ({"ANY_NODES"} if place == "licenses" else set()))),
    }


#: what happens between two cycles; numbers pick one of those that there are
moves = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.lists(jobs(), min_size=1, max_size=4)),
        st.tuples(st.just("submit"), st.lists(jobs(), min_size=1, max_size=4)),
        st.tuples(st.just("submit"), st.lists(jobs(), min_size=1, max_size=4)),
        st.tuples(st.just("array"), jobs()),
        st.tuples(st.just("het"), st.lists(jobs(), min_size=2, max_size=2)),
        st.tuples(st.just("partition"), st.tuples(st.sampled_from(["p", "q"]), limits_of_partitions)),
        st.tuples(st.just("settings"), clusters()),
        st.tuples(st.just("reserve"), reservations()),
        st.tuples(st.just("free"), st.sampled_from(["r0", "r1"])),
        st.tuples(st.just("drain"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("suspend"), st.integers(0, 9)),
        st.tuples(st.just("prolong"), st.integers(0, 9)),
        st.tuples(st.just("gone"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.integers(1, 90)),
    ),
    min_size=4,
    max_size=25,
)


def play(site: Site, kind: str, value: Any) -> None:
    """One move. What the core refuses does not happen."""
    state = site.machine.state
    if kind == "submit":
        for one in value:
            site.send(SubmitJob(spec=possible(site, one)))
    elif kind == "array":
        each = structs.replace(possible(site, value), array="0-3%2", batch=True)
        site.send(SubmitJob(spec=each, script=b"#!"))
    elif kind == "het":
        owner = {name: getattr(value[0], name) for name in ("user", "uid", "gid")}
        specs = [structs.replace(possible(site, one), **owner) for one in value]
        site.send(SubmitHetJob(components=tuple(SubmitJob(spec=one) for one in specs)))
    elif kind == "partition":
        name, changes = value
        plain = {key: item.value if isinstance(item, PartitionState) else item for key, item in changes.items()}
        site.send(UpdatePartition(name=name, changes=plain))
    elif kind == "settings":
        homes = tuple(state.partitions.values())
        site.send(Configure(settings=value, nodes=site.configs, partitions=homes))
    elif kind == "reserve":
        start_at = site.now + 60.0 * value["after"]
        fields = {key: item for key, item in value.items() if key != "after"}
        floating = 60.0 * value["after"] if "TIME_FLOAT" in value["flags"] else None
        site.send(CreateReservation(request=ReservationRequest(start_at=start_at, float_seconds=floating, **fields)))
    elif kind == "free":
        site.send(DeleteReservation(name=value))
    elif kind == "drain":
        name = site.configs[value % len(site.configs)].name
        drained = state.nodes[name].flags
        site.send(UpdateNode(names=(name,), state="RESUME" if drained else "DRAIN", reason="test"))
    elif kind == "wait":
        pass_time(site, 60.0 * value)
    else:
        _play_on_job(site, kind, value)


def possible(site: Site, asked: JobSpec) -> JobSpec:
    """The job without what the core would refuse because it is not there."""
    state = site.machine.state
    names = tuple(name for name in asked.reservation.split(",") if name in state.reservations)
    known = any(asked.features in node.available for node in state.nodes.values())
    label = asked.mcs_label if state.settings.mcs.select != "noselect" else ""
    features = asked.features if known else ""
    return structs.replace(asked, reservation=",".join(names), features=features, mcs_label=label)


def _play_on_job(site: Site, kind: str, value: int) -> None:
    state = site.machine.state
    some = {
        "cancel": [*state.pending, *state.running],
        "suspend": [*state.running],
        "prolong": [*state.pending],
        "gone": [*state.completing],
    }[kind]
    if not some:
        return
    job = state.jobs[some[value % len(some)]]
    target = JobTarget(job_id=job.id)
    if kind == "cancel":
        site.send(CancelJobs(filter=JobFilter(targets=(target,))))
    elif kind == "suspend":
        site.send(ResumeJob(target=target) if job.state is JobState.SUSPENDED else SuspendJob(target=target))
    elif kind == "prolong":
        site.send(UpdateJob(target=target, changes={"time_limit_minutes": 90}))
    else:
        site.gone(job.id, job.completing[0])


def pass_time(site: Site, seconds: float) -> None:
    """To every deadline on the way, as the controller would."""
    end = site.now + seconds
    for _ in range(1000):
        due = site.machine.next_deadline()
        if due is None or due > end:
            break
        site.now = max(site.now, due)
        site.send(Tick())
        for job_id in list(site.machine.state.completing):
            for name in site.jobs[job_id].completing:
                site.gone(job_id, name)
        site.cycle()
    else:
        raise AssertionError("time stands still")
    site.now = end


@SPEED
@given(sites(), moves)
def test_what_the_scheduler_plans_the_core_starts(site: Site, script: list[tuple[str, Any]]) -> None:
    """`Site.cycle` fails where the core drops a start. Nothing happens between a plan and its check."""
    for kind, value in script:
        play(site, kind, value)
        site.cycle()
        check_rows(site)


def check_rows(site: Site) -> None:
    """What is free on each node is the same by the scheduler's masks and by the core's sums (`NodeUse`)."""
    site.projection.settle(site.now)
    state = site.machine.state
    for row in site.projection.table.rows:
        use, capacity = state.uses[row.name], state.nodes[row.name].config.capacity
        if use.kept or any(_keeps_more(site, job_id) for job_id in use.jobs):
            continue
        assert row.free_cpus == cpu_mask(capacity) & ~use.cpus
        assert row.free_memory_mib == usable_memory_mib(capacity) - use.memory_mib
        for name, free in row.gres_free.items():
            assert free == row.hardware.pools[name].masks[""] & ~use.devices.get(name, 0)
        for (name, kind), free in row.counts_free.items():
            if not is_shared(name):
                taken = sum(count for key, count in use.uncounted.items() if key[0] == name and kind in ("", key[1]))
                assert free == row.hardware.pools[name].counts[kind] - taken
        for name, shares in row.shares_free.items():
            lines = [line for line in capacity.gres if line.name == name]
            whole = shares_by_device(lines)
            assert shares == {device: count - use.shards.get((name, device), 0) for device, count in whole.items()}


def _keeps_more(site: Site, job_id: int) -> bool:
    """The scheduler counts more of its nodes than it was given: it keeps the rest empty, or its CPUs wait for it."""
    job = site.jobs[job_id]
    return bool(job.suspended_by) or (job.allocation is not None and job.allocation.kept is not None)


@SPEED
@given(sites(), moves, st.data())
def test_a_start_that_the_core_would_accept_fits_by_what_the_scheduler_knows(
    site: Site, script: list[tuple[str, Any]], data: st.DataObject
) -> None:
    """Starts are proposed as if some of the running jobs were gone: most of them do not fit."""
    for kind, value in script:
        play(site, kind, value)
        snapshot = site.projection.snapshot(site.now)
        for record, request, allocation in proposals(snapshot, data):
            start = PlannedStart(job_id=record.id, allocation=allocation)
            if start_refusal(site.machine.state, start, site.now) == "":
                obstacle = scheduler_obstacle(snapshot, record, request, allocation)
                assert obstacle == "", f"job {record.id} on {allocation}: {obstacle}"
        site.cycle()


def proposals(snapshot: Snapshot, data: st.DataObject) -> Iterator[tuple[JobRecord, Request, Allocation]]:
    """Places of waiting jobs that are no arrays and no components, on the table without some of the running jobs."""
    table = snapshot.table.fork()
    for _ends_at, job_id in snapshot.ends:
        if data.draw(st.booleans()):
            for name in snapshot.records[job_id].all_names:
                table.release(table.index_of[name], job_id)
    for record in list(snapshot.records.values()):
        if record.waiting and not record.array_job_id and not record.het_job_id:
            for _tier, request in requests_of(snapshot, record):
                if request.partition not in snapshot.partitions or request.time_min_minutes:
                    continue  # the core may cut its limit, so that it fits where the scheduler's plan would not
                allocation = place(table, request, snapshot.eligibility)
                if allocation is not None:
                    yield record, request, allocation


def scheduler_obstacle(snapshot: Snapshot, record: JobRecord, request: Request, allocation: Allocation) -> str:
    """Why the scheduler would not start the job there, promises and the order of jobs apart; "" if it would."""
    cycle = Cycle(snapshot, None, full=True)
    verdict = partition_verdict(snapshot, request) or snapshot.reserved.verdict(request, snapshot.now)
    if verdict is not None:
        return verdict.reason.value
    if not cycle.licenses.free(request):
        return "licenses"
    if cycle.limits.verdict(record, request, allocation) is not None:
        return "limits of accounting"
    confined = snapshot.reserved.nodes().get(request.reservation) if request.reservation else None
    if confined is not None and not set(allocation.names) <= set(confined):
        return "outside of its reservation"
    rows = {part.node: snapshot.table.rows[snapshot.table.index_of[part.node]] for part in allocation.nodes}
    for part in allocation.nodes:
        obstacle = _obstacle(rows[part.node], part, request)
        if obstacle:
            return f"{part.node}: {obstacle}"
    for booking in snapshot.reserved.met(request, snapshot.now):
        for index, holder in booking.parts:
            name = snapshot.table.rows[index].name
            if name in rows and clash(holder, next(part for part in allocation.nodes if part.node == name)):
                return f"{name}: reserved"
    return ""


def _obstacle(row: NodeRow, part: NodeAllocation, request: Request) -> str:
    """Why exactly this share is not free on the row for a job of the request."""
    cpus = mask_of(part.cpus)
    if not row.up or not open_to(row, request):
        return "closed"
    if cpus & (shared_out(row, request) if request.share_rows else ~row.free_cpus):
        return "CPUs"
    if request.memory_counts and part.memory_mib > row.free_memory_mib:
        return "memory"
    own = [holder.cpus for holder in row.holders.values() if holder.partition == request.partition]
    if not request.whole and sum(mask.bit_count() for mask in (*own, cpus)) > request.max_cpus_per_node:
        return "MaxCPUsPerNode"
    counts: dict[tuple[str, str], int] = {}
    for gres in part.gres:
        mask = mask_of(gres.indexes)
        pool = row.hardware.pools[gres.name]
        if pool.shares:
            if row.shares_on_devices(gres.name).get(mask.bit_length() - 1, 0) < gres.count:
                return gres.name
        elif mask:
            if mask & ~row.devices_free(gres.name, gres.type):
                return gres.name
        else:
            for kind in {"", gres.type}:
                counts[gres.name, kind] = counts.get((gres.name, kind), 0) + gres.count
    return next((key[0] for key, count in counts.items() if row.counts_free[key] < count), "")
