"""Random clusters and requests for `placement_oracle`, and the same for Spritz."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from random import Random
from typing import Any

from msgspec.structs import replace as with_fields
from tests.property.placement_oracle import Cluster, Feature, Gpu, Job, Node, Question, Share
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec

from spritz.core.decide.submission.fit import misfit
from spritz.model.cluster.topology import Block, Switch, Topology
from spritz.model.job.record import JobSpec, Sharing
from spritz.model.resources import Allocation, GresCapacity, GresRequest, mask_of
from spritz.scheduling.plan.feasible import check_request

#: how many requests had a place
JUDGED: Counter[str] = Counter()

SITE = with_fields(SETTINGS, gres_types=("gpu", "nic"))


def cluster(random: Random) -> Cluster:
    """Two to six nodes of one to three kinds, perhaps with a network."""
    kinds = [_kind(random) for _ in range(random.choice([1, 2, 2, 3]))]
    nodes = []
    count = random.choice([2, 3, 4, 4, 5, 5, 6])
    for number in range(count):
        kind = random.choice(kinds)
        features = frozenset(random.sample("abc", random.choice([0, 1, 2, 2, 3])))
        nodes.append(replace(kind, name=f"n{number}", features=features, free=[], free_gpus=set()))
    switches = None
    if random.random() < 0.4:
        leaf = 0
        for one in nodes:
            leaf += random.random() < 0.4
            one.leaf = leaf
        leaves = sorted({one.leaf for one in nodes})
        switches = [frozenset({leaf}) for leaf in leaves]
        if len(leaves) > 2 and random.random() < 0.5:
            cut = random.randint(1, len(leaves) - 1)
            switches += [frozenset(leaves[:cut]), frozenset(leaves[cut:])]
        if random.random() < 0.9:
            switches.append(frozenset(leaves))
    return Cluster(
        nodes,
        switches,
        max_cpus=random.choice([1 << 30] * 9 + [3]),
        least_loaded=random.random() < 0.1,
        fragmentation=random.random() < 0.1,
    )


def _kind(random: Random) -> Node:
    sockets, cores, threads = random.choice([1, 2, 2]), random.choice([1, 2, 3, 4]), random.choice([1, 1, 2])
    gpus: list[Gpu] = []
    for _ in range(random.choice([0, 1, 1, 2, 2, 2])):
        kind, near = random.choice(["", "x", "y"]), random.choice([None, *range(sockets), *range(sockets)])
        gpus += [Gpu(kind, near)] * random.randint(1, 2)
    return Node(
        name="",
        sockets=sockets,
        cores=cores,
        threads=threads,
        memory=random.choice([6, 12, 100]),
        tmp=random.choice([0, 10]),
        features=frozenset(),
        gpus=tuple(gpus),
        nics=random.choice([0, 0, 2, 3]),
        leaf=0,
        weight=random.choice([1, 1, 1, 2]),
        free=[],
        free_memory=0,
        free_gpus=set(),
        free_nics=0,
    )


def maybe(random: Random, chance: float, values: Sequence[Any]) -> Any:
    """One of the values, or None."""
    return random.choice(values) if random.random() < chance else None


def job(random: Random, asked: Cluster) -> Job:
    """A request that the commands let through."""
    names = [one.name for one in asked.nodes]
    least = maybe(random, 0.6, [1, 1, 2, 2, 3, 4])
    nodes = None if least is None else (least, least + random.choice([0, 0, 0, 1, 2]))
    tasks = maybe(random, 0.5, [1, 2, 2, 3, 4, 5, 6, 8])
    if tasks is not None and nodes is not None:
        tasks = max(tasks, nodes[0])
    fields: dict[str, Any] = {"nodes": nodes, "tasks": tasks}
    if nodes is not None and nodes[0] < nodes[1] and random.random() < 0.3:
        fields["node_counts"] = tuple(sorted({nodes[0], nodes[1], random.randint(*nodes)}))
    fields.update(
        cpus_per_task=maybe(random, 0.3, [1, 2, 2, 3]),
        tasks_per_node=maybe(random, 0.15, [1, 2, 3]),
        tasks_per_core=maybe(random, 0.08, [1, 2]),
        tasks_per_socket=maybe(random, 0.12, [1, 2, 2, 3]),
        mincpus=maybe(random, 0.08, [2, 2, 3]),
        sockets=maybe(random, 0.04, [1, 2]),
        cores=maybe(random, 0.03, [1, 2]),
        threads=maybe(random, 0.05, [1, 1, 2]),
        overcommit=random.random() < 0.05,
        tmp=random.choice([0] * 15 + [5]),
        nics_node=random.choice([0] * 12 + [1]),
        nics_task=random.choice([0] * 12 + [1]) if tasks is not None else 0,
        exclusive=random.random() < 0.08 and asked.max_cpus > 99,
        binding=random.choice(["", "", "enforce", "disable"]),
    )
    _gpus(random, fields)
    _memory(random, fields)
    if random.random() < 0.3:
        fields["constraint"] = constraint(random)
    fields["named"] = tuple(random.sample(names, random.choice([1, 1, 2]))) if random.random() < 0.1 else ()
    others = [name for name in names if name not in fields["named"]]
    fields["excluded"] = tuple(random.sample(others, 1)) if others and random.random() < 0.1 else ()
    most = fields["nodes"][1] if fields["nodes"] else 9
    if fields["tasks"] is not None:
        most = min(most, fields["tasks"])
    fields["named"] = fields["named"][:most]
    fields["contiguous"] = random.random() < 0.12
    fields["spread"] = not fields["contiguous"] and random.random() < 0.08
    if asked.switches is not None:
        fields["switches"] = maybe(random, 0.3, [1, 1, 2, 3])
        fields["segment"] = maybe(random, 0.3, [1, 2, 2, 3])
        fields["spread_segments"] = fields["segment"] is not None and random.random() < 0.3
    return Job(**fields)


def _gpus(random: Random, fields: dict[str, Any]) -> None:
    """GPU options that agree with each other."""

    def typed(most: int) -> tuple[tuple[str, int], ...]:
        kind = random.choice(["", "", "", "x", "y", "xy"])
        if kind == "xy":
            return (("x", random.randint(1, most)), ("y", random.randint(1, most)))
        return ((kind, random.randint(1, most)),)

    way = random.choice(
        ["", "", "", "total", "total", "total", "node", "node", "task", "both", "socket", "gpu", "gpu", "gpun"]
    )
    if way in ("total", "gpu"):
        fields["gpus"] = typed(4 if way == "total" else 3)
    if way == "node":
        fields["gpus_node"] = typed(2)
    if way == "task":
        fields["gpus_task"] = typed(2)
        if fields["tasks"] is None and (fields["nodes"] is None or fields["nodes"][0] < fields["nodes"][1]):
            fields["tasks"] = random.randint(1, 4) if fields["nodes"] is None else fields["nodes"][1]
    if way == "both":
        fields["gpus_node"] = (("", 2),)
        if random.random() < 0.5:
            fields["gpus_task"] = (("", random.choice([1, 2])),)
            fields["tasks_per_node"] = None
            if fields["nodes"] is not None:
                fields["nodes"] = (fields["nodes"][0],) * 2
            fields.pop("node_counts", None)
        else:
            count = random.randint(1, 3)
            fields["gpus"] = (("", 2 * count),)
            fields["nodes"] = random.choice([None, (count, count), (1, count)])
            if fields["tasks"] is not None:
                fields["tasks"] = max(fields["tasks"], count)
            fields.pop("node_counts", None)
    if way == "socket":
        fields["gpus_socket"], fields["sockets"] = random.choice([1, 2]), random.choice([1, 2])
    if way == "gpu":
        if random.random() < 0.3:
            fields.pop("gpus")
            fields["tasks"] = fields["tasks"] or (fields["nodes"] or (2,))[0]
        elif random.random() < 0.7:
            fields["tasks"] = None
        fields["tasks_per_gpu"] = random.choice([1, 2, 2, 3])
    if way == "gpun":
        fields["gpus_node"], fields["tasks"] = (("", random.randint(1, 2)),), None
        fields["tasks_per_gpu"] = random.choice([1, 2])
    if fields.get("tasks_per_gpu"):
        # sbatch(1): not with these
        fields["tasks_per_node"] = None
        fields.pop("node_counts", None)
        if fields["nodes"] is not None:
            fields["nodes"] = (fields["nodes"][0],) * 2
            if fields["tasks"] is None and fields.get("gpus"):
                total = sum(count for _type, count in fields["gpus"]) * fields["tasks_per_gpu"]
                fields["nodes"] = (min(fields["nodes"][0], total),) * 2
    if way:
        fields["cpus_per_gpu"] = maybe(random, 0.15, [1, 2, 3])
    total, each = (sum(count for _t, count in fields.get(name, ())) for name in ("gpus", "gpus_task"))
    if total and not fields.get("gpus_node") and random.random() < 0.1 and not fields.get("tasks_per_gpu"):
        each = random.choice([one for one in (1, 2, 3) if total % one == 0])
        fields["gpus_task"], fields["gpus"] = (("", each),), (("", total),)
        tasks = total // each
        fields["tasks"] = random.choice([None, tasks])
        if fields["nodes"] is not None:
            fields["nodes"] = (min(fields["nodes"][0], tasks), max(fields["nodes"][0], min(fields["nodes"][1], tasks)))
            fields["nodes"] = (fields["nodes"][0], max(fields["nodes"]))
            fields.pop("node_counts", None)


def _memory(random: Random, fields: dict[str, Any]) -> None:
    way = random.choice(["", "", "", "node", "cpu", "gpu"])
    if way == "node":
        fields["memory_node"] = random.choice([0, 2, 5])
    if way == "cpu" and not fields["exclusive"]:
        fields["memory_cpu"] = random.choice([1, 2, 3])
    if way == "gpu" and any(fields.get(name) for name in ("gpus", "gpus_node", "gpus_task", "gpus_socket")):
        fields["memory_gpu"] = random.choice([2, 4])


def constraint(random: Random) -> Feature:
    """A constraint over the features a, b and c."""

    def part() -> frozenset[str]:
        return frozenset(random.sample("abc", random.choice([1, 1, 1, 2])))

    kind = random.choice(["and", "or", "one", "counts", "apart", "apart"])
    if kind == "and":
        return Feature("and", (part(),))
    if kind in ("or", "one"):
        also = random.choice(["", "", "a"])
        options = [frozenset("a"), frozenset("b"), frozenset("c")] if also else [part() for _ in range(4)]
        return Feature(kind, tuple(random.sample(options, random.choice([2, 2, 3]))), (), frozenset(also))
    parts = tuple(part() for _ in range(random.choice([2, 2, 3]) if kind != "counts" else random.choice([1, 2])))
    return Feature(kind, parts, tuple(random.choice([1, 1, 2]) for _ in parts))


def text_of(feature: Feature | None) -> str:
    """As --constraint has it."""
    if feature is None:
        return ""

    def one(part: frozenset[str]) -> str:
        return f"({'&'.join(sorted(part))})" if len(part) > 1 else "".join(part)

    if feature.kind == "and":
        return "&".join(sorted(feature.parts[0]))
    if feature.kind in ("or", "one"):
        text = "|".join(map(one, feature.parts))
        text = f"[{text}]" if feature.kind == "one" else f"({text})" if feature.also else text
        return f"{text}&{''.join(sorted(feature.also))}" if feature.also else text
    text = "&".join(f"{one(part)}*{count}" for part, count in zip(feature.parts, feature.counts, strict=True))
    return f"[{text}]" if feature.kind == "apart" else text


def spec_of(asked: Job) -> JobSpec:
    """The request for Spritz."""

    def gpus(counts: Sequence[tuple[str, int]]) -> tuple[GresRequest, ...]:
        return tuple(GresRequest("gpu", kind, count) for kind, count in counts)

    binding = {"enforce": ("enforce-binding",), "disable": ("disable-binding",), "": ()}[asked.binding]
    return spec(
        asked.tasks,
        asked.nodes,
        node_counts=asked.node_counts,
        tasks_per_node=asked.tasks_per_node,
        tasks_per_core=asked.tasks_per_core,
        tasks_per_socket=asked.tasks_per_socket,
        tasks_per_gpu=asked.tasks_per_gpu,
        cpus_per_task=asked.cpus_per_task,
        cpus_per_node_min=asked.mincpus,
        sockets_per_node=asked.sockets,
        cores_per_socket=asked.cores,
        threads_per_core=asked.threads,
        overcommit=asked.overcommit,
        memory_mib_per_node=asked.memory_node,
        memory_mib_per_cpu=asked.memory_cpu,
        memory_mib_per_gpu=asked.memory_gpu,
        tmp_mib=asked.tmp,
        gpus=gpus(asked.gpus),
        gpus_per_node=gpus(asked.gpus_node),
        gpus_per_task=gpus(asked.gpus_task),
        gpus_per_socket=gpus((("", asked.gpus_socket),)) if asked.gpus_socket else (),
        cpus_per_gpu=asked.cpus_per_gpu,
        gres_per_node=(GresRequest("nic", "", asked.nics_node),) if asked.nics_node else (),
        gres_per_task=(GresRequest("nic", "", asked.nics_task),) if asked.nics_task else (),
        gres_flags=binding,
        features=text_of(asked.constraint),
        node_list=asked.named,
        exclude=asked.excluded,
        contiguous=asked.contiguous,
        spread=asked.spread,
        sharing=Sharing.EXCLUSIVE if asked.exclusive else Sharing.DEFAULT,
        switches=asked.switches,
        segment=asked.segment,
        spread_segments=asked.spread_segments,
    )


def site_of(asked: Cluster) -> Site:
    """The cluster for Spritz, all of it idle."""
    configs = []
    for one in asked.nodes:
        gres = [
            GresCapacity(name="gpu", type=gpu.type, count=1, first_index=number, cores=_cores(one, gpu))
            for number, gpu in enumerate(one.gpus)
        ]
        if one.nics:
            gres.append(GresCapacity(name="nic", count=one.nics, flags=("CountOnly",)))
        configs.append(
            node(
                one.name,
                one.sockets * one.cores * one.threads,
                sockets=one.sockets,
                threads=one.threads,
                memory=one.memory,
                tmp=one.tmp,
                gres=gres,
                features=tuple(sorted(one.features)),
                weight=one.weight,
            )
        )
    settings = SITE if asked.switches is None else with_fields(SITE, topologies=(_topology(asked),))
    settings = with_fields(
        settings,
        least_loaded=asked.least_loaded,
        scheduler_parameters=(("gpu_fragmentation", ""),) if asked.fragmentation else (),
    )
    most = {"max_cpus_per_node": asked.max_cpus} if asked.max_cpus < 1 << 30 else {}
    return Site(configs, [partition("debug", configs, default=True, **most)], settings)


def _cores(one: Node, gpu: Gpu) -> str:
    return "" if gpu.socket is None else f"{gpu.socket * one.cores}-{(gpu.socket + 1) * one.cores - 1}"


def _topology(asked: Cluster) -> Topology:
    """A tree, or blocks where each switch has one leaf or all."""
    switches = asked.switches or []
    below = [",".join(one.name for one in asked.nodes if one.leaf in leaves) for leaves in switches]
    everything = max(map(len, switches)) == len({one.leaf for one in asked.nodes})
    alike = all(len(leaves) in (1, len({one.leaf for one in asked.nodes})) for leaves in switches)
    if everything and alike and len(asked.nodes) % 2:
        blocks = [Block(name=f"b{n}", nodes=nodes) for n, nodes in enumerate(below) if len(switches[n]) == 1]
        return Topology(kind="block", name="default", blocks=tuple(blocks), block_sizes=(1,))
    made: list[Switch] = []
    for number, (leaves, nodes) in enumerate(zip(switches, below, strict=True)):
        inner = [other for other, known in enumerate(switches[:number]) if known < leaves]
        top = [other for other in inner if not any(switches[other] < switches[third] for third in inner)]
        level = 1 + max((made[other].level for other in top), default=-1)
        made.append(Switch(name=f"s{number}", level=level, nodes=nodes, switches=",".join(f"s{one}" for one in top)))
    return Topology(kind="tree", name="default", switches=tuple(made))


def fill(site: Site, random: Random, names: Sequence[str]) -> None:
    """A few jobs that use parts of nodes."""
    for _ in range(random.choice([0, 0, 2, 4, 6])):
        fields: dict[str, Any] = {"node_list": (random.choice(list(names)),), "cpus_per_task": random.randint(1, 3)}
        if random.random() < 0.4:
            fields["gpus_per_node"] = 1
        if random.random() < 0.2:
            fields["gres_per_node"] = (GresRequest("nic", "", 1),)
        if random.random() < 0.3:
            fields["memory_mib_per_node"] = random.choice([1, 4])
        site.submit(spec(1, 1, **fields))
    site.cycle()
    for one in list(site.jobs.values()):
        if one.allocation is None:
            site.end(one.id)


def question(asked: Cluster, wanted: Job, site: Site) -> Question:
    """The question for the oracle, with what the site's jobs leave free."""
    nodes = []
    for one in asked.nodes:
        free = [set(range(socket * one.cores, (socket + 1) * one.cores)) for socket in range(one.sockets)]
        nodes.append(
            replace(
                one,
                free=free,
                free_memory=one.memory,
                free_gpus=set(range(len(one.gpus))),
                free_nics=one.nics,
                idle=True,
            )
        )
    by_name = {one.name: one for one in nodes}
    for running in site.jobs.values():
        if running.allocation is None or not running.state.active:
            continue
        for share in shares_of(running.allocation, (1,) * len(running.allocation.nodes)):
            one = by_name[share.node]
            one.idle = False
            for cores in one.free:
                cores -= {cpu // one.threads for cpu in share.cpus}
            one.free_memory -= share.memory
            one.free_gpus -= share.gpus
            one.free_nics -= share.nics
    return Question(replace(asked, nodes=nodes), wanted)


def shares_of(allocation: Allocation, tasks: Sequence[int] | None = None) -> list[Share]:
    """What a job got, for the oracle."""

    def bits(text: str) -> set[int]:
        mask = mask_of(text)
        return {bit for bit in range(mask.bit_length()) if mask >> bit & 1}

    shares = []
    for part, count in zip(allocation.nodes, tasks or allocation.tasks, strict=True):
        gpus = {bit for gres in part.gres if gres.name == "gpu" for bit in bits(gres.indexes)}
        nics = sum(gres.count for gres in part.gres if gres.name == "nic")
        shares.append(Share(part.node, count, bits(part.cpus), part.memory_mib, gpus, nics))
    return shares


def tightened(wanted: Job, asked: Cluster, site: Site, random: Random) -> Job:
    """The request with more tasks, GPUs and nodes, as long as there is a place for it."""
    for _ in range(8):
        more = wanted
        if wanted.tasks is not None and random.random() < 0.7:
            more = replace(more, tasks=wanted.tasks + 1)
        if wanted.gpus and not (wanted.gpus_task or wanted.gpus_node) and random.random() < 0.7:
            which = random.randrange(len(wanted.gpus))
            counts = [(kind, count + (number == which)) for number, (kind, count) in enumerate(wanted.gpus)]
            more = replace(more, gpus=tuple(counts))
        if wanted.nodes is not None and not wanted.node_counts and random.random() < 0.3:
            low, high = wanted.nodes
            more = replace(more, nodes=(low + 1, max(low + 1, high)))
        if more.tasks is not None and more.nodes is not None and more.tasks < more.nodes[0]:
            continue
        if more is wanted or question(asked, more, site).find() is None:
            continue
        wanted = more
    return wanted


def judge(asked: Cluster, wanted: Job, busy: Random | None, tight: Random | None = None) -> str:
    """What Spritz does wrong with this job on this cluster, with jobs on it if `busy` is given; "" if nothing. `tight`:
    after it has been given as much to carry as there is room for.
    """
    site = site_of(asked)
    if busy is not None:
        fill(site, busy, [one.name for one in asked.nodes])
    if tight is not None and question(asked, wanted, site).find() is not None:
        wanted = tightened(wanted, asked, site, tight)
    ask = question(asked, wanted, site)
    request = spec_of(wanted)
    # The refusals look at the cluster as if it were empty.
    home = with_fields(request, partitions=("debug",))
    core = misfit(site.machine.state, home, site.partitions[0])
    refused = check_request(with_fields(home, switches=None), site.projection.snapshot(site.now))
    number = site.submit(request)
    allocation = site.cycle().get(number)
    if allocation is not None:
        JUDGED["placed"] += 1
        faults = ask.faults(shares_of(allocation))
        if core is not None or refused is not None:
            faults.append(f"refused ({core}, {refused})")
        return f"wrong: {faults} in {allocation} for {wanted}" if faults else ""
    place = ask.find()
    if place is None:
        JUDGED["nowhere"] += 1
        return ""
    return f"missed ({site.reason(number)}; refused: {core}, {refused}): {wanted} on {place}"


def described(asked: Cluster, wanted: Job) -> str:
    """Both in a form that can be pasted into a test."""
    given = {name: value for name, value in asdict(wanted).items() if value != getattr(Job(), name)}
    given["constraint"] = wanted.constraint
    nodes = "\n".join(f"  {one}" for one in asked.nodes)
    return f"{nodes}\n  switches {asked.switches}\n  Job({given})\n  {text_of(wanted.constraint)}"
