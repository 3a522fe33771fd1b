"""Over random clusters and queues:

nothing is given twice, every job gets exactly what it asked for, and no job is delayed.
"""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.unit.scheduling.checker import check_cluster, check_job
from tests.unit.scheduling.site import Site, gpus, node, partition, spec

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.events.cluster import ClusterConfigured, NodesCreated, NodesDeleted, NodeUpdated
from spritz.model.job.record import Sharing
from spritz.model.node.record import NodeConfig
from spritz.model.resources import GresCapacity, GresRequest
from spritz.model.states import JobFlag, JobState, NodeFlag, NodeState
from spritz.scheduling.forecast import full_cycle
from spritz_testing.projections import portrait, rebuilt

SPEED = settings(max_examples=70, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def node_configs(draw: st.DrawFn) -> list[NodeConfig]:
    """Two to seven nodes of one to three kinds."""
    kinds = draw(st.lists(node_kinds(), min_size=1, max_size=3))
    picks = draw(st.lists(st.integers(0, len(kinds) - 1), min_size=2, max_size=7))
    return [node(f"n{number}", **kinds[pick]) for number, pick in enumerate(picks)]


@st.composite
def node_kinds(draw: st.DrawFn) -> dict[str, Any]:
    """Keywords of `node`."""
    sockets, threads = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2)]))
    cores = draw(st.integers(1, 4))
    lines: list[GresCapacity] = []
    kinds: list[list[str]] = [[], [""], ["a"], ["a", "b"]]
    for kind in draw(st.sampled_from(kinds)):
        first = sum(line.count for line in lines)
        local = draw(st.sampled_from(["", f"0-{cores - 1}"]))
        lines.append(gpus(draw(st.integers(1, 3)), kind, first, local))
    shared = draw(st.booleans())
    if lines and shared:
        count = sum(line.count for line in lines)
        lines.append(GresCapacity(name="shard", count=4 * count, per_device=4))
    return {
        "cpus": sockets * threads * cores,
        "sockets": sockets,
        "threads": threads,
        "memory": draw(st.sampled_from([4, 8, 64])),
        "gres": lines,
        "features": tuple(draw(st.sampled_from([(), ("x",), ("y",), ("x", "y")]))),
        "weight": draw(st.integers(1, 2)),
    }


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Keywords of `spec`: any mixture of size options that the command line would let through."""
    fields: dict[str, Any] = {"time_limit_minutes": draw(st.sampled_from([1, 5, 20, 60]))}
    low = draw(st.sampled_from([None, None, 1, 2, 3]))
    tasks = draw(st.sampled_from([None, 1, 1, 2, 3, 5]))
    nodes = (low, low + draw(st.integers(0, 2))) if low is not None else None
    if tasks is not None and nodes is not None:
        tasks = max(tasks, nodes[0])
    fields.update(draw(st.sampled_from(SIZES)))
    fields.update(draw(st.sampled_from(MEMORY)))
    fields.update(draw(st.sampled_from(DEVICES)))
    if "gpus_per_task" in fields and tasks is None:
        tasks = 2 if nodes is None else nodes[0]
    if fields.get("tasks_per_node") and tasks is not None:
        tasks = None
    fields.update(draw(st.sampled_from(PLACES)))
    fields["time_min_minutes"] = draw(st.sampled_from([None, None, 1]))
    fields["partitions"] = draw(st.sampled_from([("p",), ("p",), ("q",), ("q", "p")]))
    return {"tasks": tasks, "nodes": nodes, **fields}


SIZES: list[dict[str, Any]] = [
    {},
    {},
    {"cpus_per_task": 2},
    {"cpus_per_task": 3},
    {"tasks_per_node": 2},
    {"tasks_per_core": 1},
    {"tasks_per_socket": 1},
    {"cpus_per_node_min": 2},
    {"sharing": Sharing.EXCLUSIVE},
    {"sharing": Sharing.USER},
    {"sharing": Sharing.TOPO},
    {"sharing": Sharing.OVERSUBSCRIBE},
    {"overcommit": True},
]
MEMORY: list[dict[str, Any]] = [
    {},
    {},
    {"memory_mib_per_node": 3},
    {"memory_mib_per_node": 0},
    {"memory_mib_per_cpu": 1},
    {"memory_mib_per_cpu": 3},
]
DEVICES: list[dict[str, Any]] = [
    {},
    {},
    {},
    {"gpus": 1},
    {"gpus": 3},
    {"gpus": "a:2"},
    {"gpus": (GresRequest("gpu", "a", 2), GresRequest("gpu", "b", 1))},
    {"gpus_per_node": 1},
    {"gpus_per_node": "b:1"},
    {"gpus_per_task": 1},
    {"gpus_per_task": "a:1"},
    {"gpus": 2, "cpus_per_gpu": 2},
    {"gpus_per_node": 1, "gres_flags": ("enforce-binding",)},
    {"gpus_per_node": 2, "memory_mib_per_gpu": 2},
    {"gres_per_node": (GresRequest("shard", "", 3),)},
    {"gres_per_node": (GresRequest("gpu", "a", 1), GresRequest("gpu", "b", 1))},
]
PLACES: list[dict[str, Any]] = [
    {},
    {},
    {},
    {"features": "x"},
    {"features": "x|y"},
    {"features": "[x|y]"},
    {"features": "[x*1&y*1]"},
    {"exclude": ("n0",)},
    {"node_list": ("n1",)},
    {"contiguous": True},
    {"spread": True},
]

LICENSES = ["", "", "a", "a:2", "a:3", "b", "a:2,b", "a:3|b", "b|a"]

settings_of = st.builds(
    ClusterSettings,
    consumable=st.sampled_from(["core", "core", "core", "cpu", "socket"]),
    memory_consumable=st.sampled_from([True, True, False]),
    default_memory_mib_per_cpu=st.sampled_from([1, 1, 0]),
    least_loaded=st.booleans(),
    gres_types=st.just(("gpu", "shard")),
    scheduler_parameters=st.sampled_from([(), (), (("gpu_fragmentation", ""),)]),
)
sharing_of = st.sampled_from(["NO", "NO", "NO", "EXCLUSIVE", "FORCE:2", "YES:3"])


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """A cluster with partition `p` of all nodes and `q` of some, the latter of the same or a higher tier."""
    configs = draw(node_configs())
    cut = draw(st.integers(1, len(configs)))
    partitions = (
        partition("p", configs, nodes_text="ALL", default=True, oversubscribe=draw(sharing_of)),
        partition("q", configs[:cut], priority_tier=draw(st.integers(1, 2)), oversubscribe=draw(sharing_of)),
    )
    return Site(configs, partitions, draw(settings_of))


#: what happens between two cycles: seconds pass, jobs come, the i-th running job ends, a node goes or comes back
moves = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), requests()),
        st.tuples(st.just("submit"), requests()),
        st.tuples(st.just("array"), requests()),
        st.tuples(st.just("het"), st.lists(requests(), min_size=2, max_size=3)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("complete"), st.integers(0, 9)),
        st.tuples(st.just("down"), st.integers(0, 9)),
        st.tuples(st.just("bring"), node_kinds()),
        st.tuples(st.just("delete"), st.integers(0, 9)),
        st.tuples(st.just("label"), st.integers(0, 9)),
        st.tuples(st.just("cycle"), st.integers(0, 600)),
    ),
    min_size=3,
    max_size=25,
)


def holders(site: Site) -> list[Any]:
    """Jobs that hold resources, with what they still hold."""
    found = []
    for job in site.jobs.values():
        if job.allocation is not None and job.state.active:
            found.append(job)
        elif job.allocation is not None and job.flags & JobFlag.COMPLETING:
            kept = tuple(part for part in job.allocation.nodes if part.node in job.completing)
            found.append(structs.replace(job, allocation=structs.replace(job.allocation, nodes=kept)))
    return found


def play(site: Site, move: tuple[str, Any]) -> None:
    """One move."""
    kind, value = move
    running = [job for job in holders(site) if job.state is JobState.RUNNING]
    if kind == "submit":
        site.submit(spec(**value), priority=1 + len(value))
    elif kind == "array":
        site.submit(spec(**value), array=range(4), limit=2)
    elif kind == "het":
        site.submit_het(*(spec(**fields) for fields in value), priorities=[1 + len(fields) for fields in value])
    elif kind == "down":
        config = site.configs[value % len(site.configs)]
        up = site.projection.nodes[config.name].flags == 0
        site.set_node(config.name, NodeState.IDLE, NodeFlag.DRAIN if up else 0)
    elif kind == "bring":
        config = structs.replace(node(f"d{site.machine.state.version}", **value), dynamic=True)
        site.configs = (*site.configs, config)
        site.apply(NodesCreated(at=site.now, nodes=(config,)))
        site.set_node(config.name)
    elif kind == "delete":
        config = site.configs[value % len(site.configs)]
        if config.dynamic and not site.machine.state.uses[config.name].jobs:
            site.apply(NodesDeleted(at=site.now, names=(config.name,)))
            site.configs = tuple(item for item in site.configs if item is not config)
    elif kind == "label":
        site.apply(_labelled(site, value))
    elif kind == "end" and running:
        site.end(running[value % len(running)].id)
    elif kind == "complete" and running:
        job = running[value % len(running)]
        site.end(job.id, completing=job.allocation.names[:1])
    elif kind == "cycle":
        cycle_and_check(site, value)


def _labelled(site: Site, value: int) -> NodeUpdated:
    """Another feature, weight or state of a node, in one event."""
    old = site.machine.state.nodes[site.configs[value % len(site.configs)].name]
    config = structs.replace(old.config, features=(("x",), ("y",), ())[value % 3], weight=1 + value % 2)
    site.configs = tuple(config if item.name == config.name else item for item in site.configs)
    flags = NodeFlag.DRAIN.value if value % 4 == 3 else 0
    return NodeUpdated(
        at=site.now, node=structs.replace(old, config=config, features_active=config.features, flags=flags)
    )


def cycle_and_check(site: Site, seconds: int) -> None:
    """Let time pass, end what is over its limit, run a cycle and judge it."""
    site.now += seconds
    for job in holders(site):
        if job.state is JobState.RUNNING and job.ends_at <= site.now:
            site.end(job.id)
        elif job.flags & JobFlag.COMPLETING and seconds % 2:
            for name in job.completing:
                site.gone(job.id, name)
    up = {name: item for name, item in site.projection.nodes.items() if item.flags == 0}
    nodes = {config.name: config for config in site.configs}
    homes = site.machine.state.partitions
    for job_id, allocation in site.cycle().items():
        home = homes[allocation.partition]
        assert set(allocation.names) <= set(up), "a job was started on a drained node"
        check_job(site.jobs[job_id].spec, allocation, nodes, home, site.settings)
    check_cluster(nodes, holders(site), homes)
    for job in site.jobs.values():
        whole = [site.jobs[job.het_job_id + offset] for offset in range(job.het_size)]
        assert len({one.state is JobState.PENDING for one in whole}) <= 1, f"job {job.het_job_id} is half started"
        assert len({one.started_at for one in whole}) <= 1, f"job {job.het_job_id} did not start as one"


@SPEED
@given(sites(), moves)
def test_nothing_is_given_twice_and_every_job_gets_exactly_what_it_asked_for(
    site: Site, script: list[tuple[str, Any]]
) -> None:
    for move in script:
        play(site, move)
    cycle_and_check(site, 1)


@SPEED
@given(sites(), moves)
def test_the_projection_of_changes_equals_the_projection_of_records(site: Site, script: list[tuple[str, Any]]) -> None:
    for move in script:
        play(site, move)
    assert portrait(rebuilt(site.machine.state), site.now) == portrait(site.projection, site.now)


@SPEED
@given(sites(), moves)
def test_a_plan_depends_on_the_snapshot_alone_not_on_what_earlier_cycles_remember(
    site: Site, script: list[tuple[str, Any]]
) -> None:
    for move in script:
        play(site, move)
    forgetful = pickle.loads(pickle.dumps(site.projection.snapshot(site.now)))
    forgetful.queue.forget_failures()
    for shape in forgetful.queue.shapes.values():
        shape.verdict = None
        forgetful.queue.unsettled.update((record.id, record) for record in shape.jobs.values())
    remembered = site.plan()
    forgotten = full_cycle.run(forgetful).plan
    assert (forgotten.starts, forgotten.future_starts) == (remembered.starts, remembered.future_starts)
    assert forgotten.notes == remembered.notes, "a job whose reason has changed was not looked at"


EASY = (("bf_policy", "easy"),)
PREDICT = (("bf_predict", ""),)
SLOWDOWN = (("bf_predict", "slowdown"),)
LICENSED = (("bf_licenses", ""),)


@settings(SPEED, max_examples=30)
@given(
    sites(),
    st.lists(requests(), min_size=4, max_size=14),
    st.sampled_from([(), (), EASY, PREDICT, SLOWDOWN, SLOWDOWN, (("bf_max_job_test", "3"),), LICENSED, LICENSED]),
    st.data(),
)
def test_no_promised_start_is_ever_broken(
    site: Site, wanted: list[dict[str, Any]], parameters: tuple[tuple[str, str], ...], data: st.DataObject
) -> None:
    """Jobs come in a batch; afterwards they only end, at their limits or before, with a quick or full cycle after each.

    Counted features are left out: which nodes stand for which of them is found by trial, not by complete search.
    """
    site.apply(
        ClusterConfigured(
            at=site.now,
            settings=structs.replace(site.settings, scheduler_parameters=parameters, licenses=(("a", 3), ("b", 1))),
            nodes=site.configs,
            partitions=site.partitions,
        )
    )
    plain = [fields for fields in wanted if "*" not in fields.get("features", "")]
    if parameters == LICENSED:
        plain = [fields | {"licenses": data.draw(st.sampled_from(LICENSES))} for fields in plain]
    while plain:
        components = [spec(**plain.pop()) for _ in range(min(len(plain), data.draw(st.sampled_from([1, 1, 1, 2, 3]))))]
        if len(components) == 1:
            site.submit(components[0], priority=data.draw(st.integers(1, 3)))
        else:
            site.submit_het(*components, priorities=[data.draw(st.integers(1, 3))] * len(components))
    promises: dict[int, float] = {}
    for _ in range(3 * len(wanted)):
        site.cycle(data.draw(st.sampled_from([None, None, 100])))
        for job_id, start_at in promised(site).items():
            promises[job_id] = min(start_at, promises.get(job_id, start_at))
        for waiting in site.projection.queue.gangs.values():
            common = {promises.get(number) for number in waiting}
            assert len(common) == 1, f"components {sorted(waiting)} were planned starts of their own: {common}"
        for job_id, start_at in promises.items():
            late = site.jobs[job_id].state is JobState.PENDING and site.now >= start_at
            assert not late, f"job {job_id} was promised {start_at}, it is {site.now}"
        running = [job for job in site.jobs.values() if job.state is JobState.RUNNING]
        if not running:
            break
        job = min(running, key=lambda job: job.ends_at)
        if data.draw(st.booleans()):
            job = data.draw(st.sampled_from(running))
            site.now += (min(item.ends_at for item in running) - site.now) / 2
        else:
            site.now = job.ends_at
        for other in running:
            if other is job or other.ends_at <= site.now:
                site.end(other.id)


def promised(site: Site) -> dict[int, float]:
    """Promised start of each job that has one in some partition: of equal requests the first promise is the first's.

    What a quick cycle has promised in passing does not count.
    """
    projection = site.projection
    projection.snapshot(site.now)
    found: dict[int, float] = {}
    for request, promises in projection.ledger.by_request.items():
        shape = projection.queue.shapes[request]
        for key, promise in zip(shape.keys, promises, strict=False):
            if promise.provisional:
                break
            job_id = promise.holder or shape.jobs[key].id
            found[job_id] = min(promise.start_at, found.get(job_id, promise.start_at))
    return found
