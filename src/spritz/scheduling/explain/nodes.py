"""For one request, the first test that each node fails, counted, with figures.

A node passes all tests (`able`) exactly if `capacity` gives it the least part of the job; every other answer is derived
from the functions that `capacity` is made of.

Source: squeue(1) JOB REASON CODES; `view.capacity`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.node.node_features import to_activate
from spritz.model.queries.explain import NodeTest, PartitionView
from spritz.model.states import NodeFlag, NodeState
from spritz.notation.extra import is_met
from spritz.notation.hostlist import compress
from spritz.scheduling.explain.wording import amount, listed, resource
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.placement.share import cpus_wanted, needs_of
from spritz.scheduling.view.capacity import capacity, fits_hardware, memory_free, open_to, usable_cpus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.scheduling.explain.context import Planned, PlanView
    from spritz.scheduling.view.nodes import Holder, NodeRow
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

#: the order in which tests are made and shown
TESTS = (
    "partition",
    "excluded",
    "external",
    "reservation",
    "features",
    "too_small",
    "state",
    "not_named",
    "busy",
    "reserved",
    "kept",
    "able",
)


#: Reasons for a refusal that are printed.
_REASONS_MAX = 3


class Shortage(Struct, frozen=True, gc=False):
    """A resource of which a node has less than the least part of the job needs."""

    what: str
    needed: int
    free: int


class FailedTest(Struct, frozen=True):
    """The first test that a node fails. Nodes with equal `test`, `text` and names of `short` are shown together."""

    test: str
    text: str = ""
    short: tuple[Shortage, ...] = ()


def least_portion(request: Request) -> tuple[int, int]:
    """Tasks, and GPUs of `gres_total`, that a node must be able to carry to be of any use."""
    target = target_of(request)
    alone = target.nodes_max == 1
    if target.tasks is None:
        tasks = target.tasks_per_node
    else:
        tasks = target.tasks if alone else 1
    return tasks, (target.gpus if alone else 1) if target.gpus else 0


def whole_portion(request: Request) -> tuple[int, int]:
    """Tasks and GPUs that one node must carry to hold the whole job."""
    target = target_of(request)
    tasks = target.tasks_per_node if target.tasks is None else target.tasks
    return (tasks, target.gpus) if target.nodes_min == 1 else (1 << 30, 0)


def fewest_nodes(view: PlanView, request: Request, serving: Iterable[int]) -> int:
    """How many of the largest nodes hold the whole job when empty; `nodes_min` if all together do not."""
    target = target_of(request)
    sums = [target.tasks or 0, target.gpus]
    if max(sums) <= target.nodes_min:
        return request.nodes_min
    most = request.nodes_min
    empty = [capacity(_emptied(view.table.rows[index]), request) for index in serving]
    for place, wanted in enumerate(sums):
        count, missing = 0, wanted
        for held in sorted((sizes[place] for sizes in empty), reverse=True):
            if missing <= 0 or not held:
                break
            count, missing = count + 1, missing - held
        most = max(most, count if missing <= 0 else 0)
    return most


def _emptied(row: NodeRow) -> NodeRow:
    if row.up and not row.holders:
        return row
    bare = row.copy()
    bare.holders, bare.up = {}, True
    bare.recount()
    return bare


def able(row: NodeRow, request: Request, least: tuple[int, int]) -> bool:
    """Whether the node can carry the least part of the job as it is now."""
    tasks, gpus = capacity(row, request)
    return tasks >= least[0] and gpus >= least[1]


def partition_view(view: PlanView, request: Request, planned: Planned | None = None) -> PartitionView:
    """All nodes of the cluster as this request finds them. `planned`: the job's planned start."""
    groups: dict[tuple[int, str, tuple[str, ...]], list[tuple[str, FailedTest]]] = {}
    snapshot = view.snapshot
    least = least_portion(request)
    inside = frozenset(snapshot.eligibility.partition_nodes.get(request.partition, ()))
    serving = frozenset(snapshot.eligibility.nodes(request).tolist())
    kept = _kept_by_node(view, request, planned)
    named = named_alone(request)
    for index, row in enumerate(view.table.rows):
        if index not in inside:
            finding = FailedTest("partition", f"not in partition {request.partition}")
        else:
            finding = _test(view, row, request, least, index in serving, named, kept.get(index, ()))
        key = (TESTS.index(finding.test), finding.text, tuple(short.what for short in finding.short))
        groups.setdefault(key, []).append((row.name, finding))
    tests = tuple(_node_test(members) for _key, members in sorted(groups.items(), key=lambda item: item[0]))
    return PartitionView(
        partition=request.partition,
        reservation=request.reservation,
        total=len(view.table.rows),
        nodes_needed=fewest_nodes(view, request, serving & inside),
        able=sum(test.count for test in tests if test.test == "able"),
        tests=tests,
    )


def named_alone(request: Request) -> frozenset[str]:
    """The nodes that the job names, if it takes no others."""
    return frozenset(request.node_list) if request.nodes_max == len(set(request.node_list)) else frozenset()


def nodes_wanted(view: PlanView, request: Request) -> list[int]:
    """Indexes of the nodes that could ever serve the job."""
    named, rows = named_alone(request), view.table.rows
    return [
        index for index in view.snapshot.eligibility.nodes(request).tolist() if not named or rows[index].name in named
    ]


def _node_test(members: list[tuple[str, FailedTest]]) -> NodeTest:
    finding = members[0][1]
    text = finding.text
    needed = most = 0
    if finding.short:
        figures = []
        for place, short in enumerate(finding.short):
            top = max(other.short[place].free for _name, other in members)
            figures.append(
                f"{amount(short.what, short.needed)} needed, {'at most ' if len(members) > 1 else ''}"
                f"{amount(short.what, top)} {'there' if finding.test == 'too_small' else 'free'}"
            )
            if not place:
                needed, most = short.needed, top
        several = len(finding.short) > 1
        named = [
            f"{resource(short.what)}: {figure}" if several else figure
            for short, figure in zip(finding.short, figures, strict=True)
        ]
        text = f"{text} ({'; '.join(named)})"
    return NodeTest(
        test=finding.test,
        count=len(members),
        nodes=compress([name for name, _finding in members]),
        text=text,
        what=tuple(short.what for short in finding.short),
        needed=needed,
        most=most,
    )


def _test(
    view: PlanView,
    row: NodeRow,
    request: Request,
    least: tuple[int, int],
    serves: bool,
    named: frozenset[str],
    kept: Iterable[Planned],
) -> FailedTest:
    # In the order in which placement excludes nodes: the first test that fails is the reason. What no end of a job can
    # change comes first, so a node that is too small is never reported as busy or down.
    if (finding := _unsuitable(view.snapshot, row, request, least, serves)) is not None:
        return finding
    if not row.up:
        return FailedTest("state", state_text(view, row))
    if named and row.name not in named:
        return FailedTest("not_named", "not among the nodes the job names (--nodelist)")
    if not able(row, request, least):
        return _busy(row, request, least)
    held = row.copy()
    for future_start in kept:
        for index, holder in future_start.parts:
            if index == row.index:
                held.charge(holder)
    if held.holders.keys() - row.holders.keys() and not able(held, request, least):
        if all(starts_together(view, request, future_start.request) for future_start in kept):
            return FailedTest("kept", "free, but kept for a component that starts with it")
        first = min(future_start.start_at for future_start in kept)
        wait = "from now on" if first <= view.now else "soon"
        return FailedTest("kept", f"free, but {wait} kept for jobs ahead of it")
    taken = _reserved(view, row, request)
    if taken is not None:
        held = row.copy()
        for holder in taken[1]:
            held.charge(holder)
        if not able(held, request, least):
            return FailedTest("reserved", taken[0])
    return FailedTest("able", f"can take {'it' if able(row, request, whole_portion(request)) else 'a part of it'} now")


def _unsuitable(
    snapshot: Snapshot, row: NodeRow, request: Request, least: tuple[int, int], serves: bool
) -> FailedTest | None:
    """Why the node could not carry the least part of the job even if it were up and empty; None if it could."""
    if row.name in request.exclude:
        return FailedTest("excluded", "excluded by the job (--exclude)")
    if not serves:
        if row.external and not request.external:
            return FailedTest("external", "another system runs it: for external jobs alone")
        apart = _not_reserved(snapshot, row, request)
        if apart:
            return FailedTest("reservation", apart)
        if request.boots_later and to_activate(request.boots, row.features, row.changeable):
            return FailedTest("features", f"not rebooted for {request.features} yet (--delay-boot)")
        if request.extra and not is_met(request.extra, row.extra):
            return FailedTest("features", f"its extra data is not as asked for: {request.extra}")
        return FailedTest("features", f"without the features {request.features}")
    bare = _emptied(row)
    if able(bare, request, least):
        return None
    short = shortages(bare, request, least)
    text = f"not enough {listed([resource(item.what) for item in short])}" if short else _build(bare, request)
    return FailedTest("too_small", text, short)


def lacking(snapshot: Snapshot, request: Request) -> str:
    """For a request that no nodes could ever hold: what keeps the nodes of its partition from it, the most common
    reasons first.
    """
    target = target_of(request)
    least = least_portion(request)
    if target.tasks is not None and request.tasks_per_node:
        # The other nodes cannot carry more than this number of tasks.
        least = max(least[0], target.tasks - (target.nodes_max - 1) * request.tasks_per_node), least[1]
    serving = frozenset(snapshot.eligibility.nodes(request).tolist())
    named = named_alone(request)
    rows = snapshot.ideal_table().rows
    groups: dict[tuple[str, tuple[str, ...]], list[tuple[str, FailedTest]]] = {}
    held: list[tuple[int, int]] = []
    for index in snapshot.eligibility.partition_nodes.get(request.partition, ()):
        row = rows[index]
        if named and row.name not in named:
            continue
        finding = _unsuitable(snapshot, row, request, least, index in serving)
        if finding is None:
            held.append(capacity(_emptied(row), request))
        else:
            key = finding.text, tuple(short.what for short in finding.short)
            groups.setdefault(key, []).append((row.name, finding))
    tests = sorted(map(_node_test, groups.values()), key=lambda test: -test.count)
    reasons = [f"{test.nodes}: {test.text}" for test in tests[:_REASONS_MAX]]
    if held:
        nodes = "1 node" if len(held) == 1 else f"{len(held)} nodes"
        sums = [sum(sorted(sizes)[-target.nodes_max :]) for sizes in zip(*held, strict=True)]
        if len(held) < target.nodes_min:
            wanted = f"could hold a part of it, {target.nodes_min} needed"
        elif sums[0] < (target.tasks or 0):
            wanted = f"could hold {sums[0]} of {target.tasks} tasks"
        elif sums[1] < target.gpus:
            wanted = f"could hold {sums[1]} of {target.gpus} GPUs"
        else:
            wanted = "could hold a part of it, but not together as asked for"
        reasons.insert(0, f"{nodes} of partition {request.partition} {wanted}")
    return "; ".join(reasons)


def _build(row: NodeRow, request: Request) -> str:
    """The property of the node's hardware, other than an amount, that does not suit the job."""
    if row.hardware.tmp_mib < request.tmp_mib:
        return f"local disk too small ({amount('disk', request.tmp_mib)} needed)"
    if not fits_hardware(row.hardware, request):
        return "too few sockets, cores or threads of the kind asked for"
    return "its CPUs, memory and devices do not go together as asked for"


def _not_reserved(snapshot: Snapshot, row: NodeRow, request: Request) -> str:
    """Why reservations rule the node out: it is not in the job's reservation, or a floating one always comes first."""
    reserved = snapshot.reserved
    reservation = reserved.by_name.get(request.reservation)
    if reservation is not None and not reservation.flexible and row.name not in reservation.nodes:
        return f"not in reservation {reservation.name}"
    floating = [name for name in reserved.too_long(request) if row.name in reserved.by_name[name].nodes]
    return f"reserved: {listed(floating)}, which always begins before the job could end" if floating else ""


def _reserved(view: PlanView, row: NodeRow, request: Request) -> tuple[str, list[Holder]] | None:
    """The reservation that begins before the job would end, and what it takes of the node."""
    names: dict[str, None] = {}
    holders = []
    for booking in view.snapshot.reserved.met(request, view.now):
        for index, holder in booking.parts:
            if index == row.index:
                kind = " (maintenance)" if booking.reservation.maintenance else ""
                names[booking.reservation.name + kind] = None
                holders.append(holder)
    return (f"reserved: {listed(sorted(names))}", holders) if holders else None


def _busy(row: NodeRow, request: Request, least: tuple[int, int]) -> FailedTest:
    if not open_to(row, request):
        if request.whole:
            return FailedTest("busy", "not empty (the job wants whole nodes)")
        if any(holder.whole for holder in row.holders.values()):
            return FailedTest("busy", "given whole to another job")
        return FailedTest("busy", "in use by another user (nodes are one user's at a time)")
    short = shortages(row, request, least)
    if not short:
        return FailedTest("busy", "what is free does not go together as asked for (cores, sockets, devices)")
    return FailedTest("busy", f"{listed([resource(item.what) for item in short])} in use", short)


def shortages(row: NodeRow, request: Request, least: tuple[int, int]) -> tuple[Shortage, ...]:
    """The resources of which the node has too little for the least part of the job: GRES, memory, CPUs."""
    tasks, gpus = least
    lacking = []
    needs = needs_of(request, tasks, gpus)
    for (name, kind), needed in sorted(needs.items()):
        free = row.count_free(name, kind)
        if free < needed:
            lacking.append(Shortage(f"gres/{name}:{kind}" if kind else f"gres/{name}", needed, free))
    devices = sum(number for (name, _kind), number in needs.items() if name == "gpu")
    cpus = max(1, cpus_wanted(row.hardware, request, tasks, devices))
    memory = _memory_needed(row, request, cpus, devices)
    if memory > memory_free(row, request):
        lacking.append(Shortage("memory", memory, memory_free(row, request)))
    usable = usable_cpus(row, request).bit_count()
    if usable < cpus:
        lacking.append(Shortage("cpus", cpus, usable))
    return tuple(lacking)


def _memory_needed(row: NodeRow, request: Request, cpus: int, gpus: int) -> int:
    if request.memory_per_node is not None:
        return request.memory_per_node or row.hardware.memory_mib
    if request.memory_per_cpu:
        return request.memory_per_cpu * cpus
    return (request.memory_per_gpu or 0) * gpus


_FLAG_WORDS = (
    (NodeFlag.FAIL, "failing"),
    (NodeFlag.NOT_RESPONDING, "not responding"),
    (NodeFlag.INVALID_REG, "smaller than configured"),
    (NodeFlag.MAINTENANCE, "under maintenance"),
    (NodeFlag.REBOOT_REQUESTED | NodeFlag.REBOOT_ISSUED, "to be rebooted"),
    (NodeFlag.POWERED_DOWN | NodeFlag.POWERING_DOWN, "powered down"),
    (NodeFlag.POWERING_UP, "powering up"),
    (NodeFlag.BLOCKED, "blocked"),
)


def state_text(view: PlanView, row: NodeRow) -> str:
    """Why no job may start on the node: its state and the administrator's reason."""
    node = view.nodes.get(row.name)
    if node is None:
        return "down"
    if node.state is NodeState.DOWN or node.state is NodeState.ERROR:
        text = "down"
    elif node.flags & NodeFlag.DRAIN:
        text = "draining" if row.holders else "drained"
    elif node.state is NodeState.UNKNOWN:
        text = "not registered yet"
    elif node.state is NodeState.FUTURE:
        text = "not there yet (FUTURE)"
    else:
        text = next((words for flags, words in _FLAG_WORDS if node.flags & flags), "not available")
    return f"{text}: {node.reason}" if node.reason else text


def starts_together(view: PlanView, request: Request, other: Request) -> bool:
    """Whether both are components of one heterogeneous job."""
    if not request.component or not other.component:
        return False
    records = view.snapshot.records
    return records[request.component].het_job_id == records[other.component].het_job_id


def _kept_by_node(view: PlanView, request: Request, planned: Planned | None) -> dict[int, list[Planned]]:
    """By node, planned starts of other jobs that begin before this job would end."""
    by_node: dict[int, list[Planned]] = {}
    ends_at = view.now + request.seconds
    for future_start in view.future_starts:
        if future_start is not planned and future_start.start_at < ends_at:
            for index, _holder in future_start.parts:
                by_node.setdefault(index, []).append(future_start)
    return by_node
