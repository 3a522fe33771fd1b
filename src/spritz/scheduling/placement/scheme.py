"""A request as plain numbers, for the compiled choice of nodes: what `columns` and `runs` compute, as sums.

`scheme_of` gives a scheme where counts decide everything and the usual order of nodes applies; otherwise arrays and
rows do the work. A test compares the two.

Source: as `columns` and `runs`; docs/decisions/0166.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.scheduling import kernels
from spritz.scheduling.placement.columns import counts_suffice, gpus_asked, least_counts
from spritz.scheduling.placement.runs import plain
from spritz.scheduling.placement.select import Candidate, Portion, Target, portions_of, target_of
from spritz.scheduling.view.capacity import FAR, PLENTY
from spritz.scheduling.view.request import Grain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.scheduling.view.eligibility import Choice, Eligibility
    from spritz.scheduling.view.profile import Floats
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Bools, Ints, NodeTable

#: schemes cached
SCHEMES_MAX = 8192
#: limit of the compiled code
TERMS_MAX = 16


class Scheme(Struct, frozen=True):
    """A node must have `least` of each of `columns` (indexes in `NodeRow.counts`).

    `tasks` and `gpus` are terms of five numbers: index in `columns`, less, part, times, each. A term is ((have - less)
    // part * times) // each; the least of the terms (and, for tasks, of `most`) is what a node can carry.
    """

    columns: tuple[int, ...]
    least: tuple[int, ...]
    tasks: tuple[int, ...]
    gpus: tuple[int, ...]
    target: Target
    most: int
    #: nodes with fewer free CPUs than this cannot serve now
    floor: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The target in the form that the compiled code takes."""
        target = self.target
        tasks = -1 if target.tasks is None else target.tasks
        numbers = (target.nodes_min, target.nodes_max, target.nodes_wanted, tasks, target.gpus, self.most)
        return tuple(min(number, FAR) for number in numbers)

    def portions(self, chosen: Sequence[int]) -> list[Portion] | None:
        """The portion of each chosen node. `chosen`: node index, tasks and GPUs, flattened."""
        picked = [Candidate(*chosen[place : place + 3]) for place in range(0, len(chosen), 3)]
        return portions_of(picked, self.target)


def scheme_for(eligibility: Eligibility, table: NodeTable, request: Request, choice: Choice) -> Scheme | None:
    """The scheme if the compiled code can choose among the nodes of the choice; else None.

    Cached in `eligibility.derived`, which is valid for all tables of the same nodes.
    """
    if not kernels.compiled or table.exclusive or choice.groups:
        return None
    if choice.boots is not None or eligibility.workload is not None:
        return None
    if not request.flat and request.partition in eligibility.fabrics:
        return None
    cache = eligibility.derived
    if request not in cache:
        if len(cache) >= SCHEMES_MAX:
            cache.clear()
        cache[request] = scheme_of(table, request)
    scheme = cache[request]
    return scheme if isinstance(scheme, Scheme) else None


def scheme_of(table: NodeTable, request: Request) -> Scheme | None:
    """The scheme; None where more than counts decides or another order applies. It is the same for all tables of the
    same nodes on which no job keeps others off.
    """
    target = target_of(request)
    least = least_counts(table, request, target.tasks_per_node if target.tasks is None else 1)
    if least is None or request.tmp_mib or request.at_end:
        return None
    if not counts_suffice(table, request) or not plain(request):
        return None
    columns = tuple(least)
    places = {column: place for place, column in enumerate(columns)}
    threads = 1 if request.grain is Grain.CPU or not len(table.threads) else int(table.threads[0])
    used = min(threads, request.threads_used) if request.threads_used else threads
    cpus = places[0 if request.grain is Grain.CPU else 1]
    # Every quantity that limits the tasks of a node becomes one term: CPUs in whole grains, CPUs for which there is
    # memory, each GRES of the tasks, memory of the GPUs of the tasks. The compiled code takes the least of them.
    sources = [(cpus, 0, threads)]
    if request.memory_per_cpu and request.memory_per_node is None:
        sources.append((places[2], 0, request.memory_per_cpu * threads))
    tasks = [(*source, used, request.cpus_per_task) for source in sources]
    kinds = {kind: place for place, kind in enumerate(table.gres, 4)}
    fixed = request.node_needs
    gpus_node, gpus_task = gpus_asked(request)
    most = min(request.tasks_per_node or PLENTY, request.tasks_per_node_max)
    if request.tasks_per_gpu and gpus_node:
        most = min(most, gpus_node * request.tasks_per_gpu)
    for need in request.gres_task:
        kind = need.name, need.type
        tasks.append((places[kinds[kind]], fixed.get(kind, 0), need.count, 1, 1))
    if request.memory_per_gpu and gpus_task:
        tasks.append((places[2], gpus_node * request.memory_per_gpu, gpus_task * request.memory_per_gpu, 1, 1))
    gpus: list[tuple[int, ...]] = []
    if request.gres_total is not None:
        gpus.append((places[kinds[request.gres_total.name, request.gres_total.type]], 0, 1, 1, 1))
        if request.cpus_per_gpu:
            gpus += [(*source, threads, request.cpus_per_gpu) for source in sources]
        if request.memory_per_gpu:
            gpus.append((places[2], 0, request.memory_per_gpu, 1, 1))
    if len(tasks) > TERMS_MAX or len(gpus) > TERMS_MAX or len(columns) > TERMS_MAX:
        return None
    return Scheme(
        columns,
        tuple(least.values()),
        tuple(min(number, FAR) for term in tasks for number in term),
        tuple(min(number, FAR) for term in gpus for number in term),
        target,
        most,
        max(1, request.cpus_floor),
    )


def choose(
    scheme: Scheme,
    times: Floats,
    counts: Sequence[Ints],
    nodes: Ints,
    up: Bools,
    weights: Ints,
    busy: Ints | None,
    since: float,
    seconds: float,
    until: float,
    tries: int,
) -> tuple[float, int, list[int] | None] | None:
    """The first time in [since, until] at which the job fits for `seconds`, by counts; the number of breakpoints tried;
    and the input of `Scheme.portions` (None: runs of neighbours do not suffice, and a better search must decide). None
    if it never fits.

    `times` float64[node, breakpoint] and `counts` int64[node, breakpoint] as in `Profile`, in the order of
    `NodeRow.counts`. `busy`: free CPUs now; nodes with fewer than the request could use come first.
    """
    return kernels.choose_nodes(
        times,
        nodes,
        tuple([counts[column] for column in scheme.columns]),
        scheme.least,
        since,
        seconds,
        until,
        up,
        scheme.tasks,
        scheme.gpus,
        scheme.numbers,
        weights,
        busy,
        scheme.floor,
        tries,
    )
