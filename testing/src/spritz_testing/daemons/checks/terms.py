"""Rule 4: two controllers never both act.

A controller acts in its term, and each takeover begins a higher one. The effect of a second controller shows where a
node accepts its orders, so that is what is checked:

- a node that has accepted an order of a term, or was registered by its controller, accepts no order of a lower one,
  also after a restart of its slurmd (which keeps the term in memory only, so that is more than it promises by itself);
- the orders of one term come from one process: each that opens the journal raises the term;
- a term begins after a fault, or after a request that ends or replaces the leader (`_LEADERS_END`);
- anywhere, an order of a lower term is accepted only for `Rules.stale_order_seconds` after the first order of a higher
  one: it may have been on its way.

Source: docs/architecture.md, "A node never starts the same (job, restart count, step) twice, and refuses a controller
of an older term"; `controller.journal.contract`, "opening takes a lock and raises `term` by one".
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import REGISTERED, Acted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spritz_testing.daemons.checks.story import Story
    from spritz_testing.daemons.history import Entry


#: Requests after which another process may lead.
_LEADERS_END = frozenset({"take_over", "shutdown", "reconfigure", "reread"})

#: Seconds from a fault to the takeover that it causes: the longest lease, a start, and what follows from these.
_REASON_SECONDS = 400.0


def terms(story: Story) -> Iterator[Violation]:
    """All orders that nodes accepted."""
    acts = [entry for entry in story.entries if isinstance(entry, Acted)]
    orders = [act for act in acts if act.kind != REGISTERED]
    yield from _on_each_node(acts)
    yield from _one_process_each(orders)
    if story.final.rules.takeovers_have_reasons:
        yield from _begun_for_a_reason(story, orders)
    if story.final.rules.stale_order_seconds is not None:
        yield from _everywhere(orders, story.final.rules.stale_order_seconds)


def _on_each_node(acts: list[Acted]) -> Iterator[Violation]:
    highest: dict[str, Acted] = {}
    for order in acts:
        before = highest.get(order.node, order)
        if order.term < before.term:
            if order.kind == REGISTERED:
                continue  # an answer that was on its way for long: the node goes on with the higher term
            text = f"{_named(order)}, after {before.kind} of term {before.term} from {before.host}"
            yield _violation("4.term", before, order, f"{text} at {clock(before.at)}")
        else:
            highest[order.node] = order


def _named(order: Acted) -> str:
    node = order.node or "a node"
    return f"{node} accepted {order.kind} of term {order.term} from {order.host} at {clock(order.at)}"


def _one_process_each(orders: list[Acted]) -> Iterator[Violation]:
    owners: dict[int, Acted] = {}
    for order in orders:
        if not order.pid:
            continue  # passed on by other nodes for a controller that is gone
        first = owners.setdefault(order.term, order)
        if (order.host, order.pid) != (first.host, first.pid):
            text = f"{_named(order)}, process {order.pid}; that is the term of {first.host}, process {first.pid}"
            yield _violation("4.leader", first, order, text)


def _begun_for_a_reason(story: Story, orders: list[Acted]) -> Iterator[Violation]:
    """A controller takes the place of another one that is gone, silent, or told to go."""
    ends = [operation.called_at for operation in story.operations if operation.kind in _LEADERS_END]
    reasons = [(at, at) for at in ends] + [(fault.since, fault.until) for fault in story.faults]
    if not orders:
        return
    highest = orders[0]
    for order in orders:
        if order.term <= highest.term:
            continue
        before, highest = highest, order
        # The last order of the term before was accepted at some time, and the leader may have ended long before this.
        if not any(since <= order.at and until >= before.at - _REASON_SECONDS for since, until in reasons):
            text = f"{_named(order)}, after {before.kind} of term {before.term}, with nothing between that explains it"
            yield _violation("4.takeover", before, order, text)


def _everywhere(orders: list[Acted], seconds: float) -> Iterator[Violation]:
    #: first order of each term that was higher than all before
    newer: list[Acted] = []
    for order in orders:
        if not newer or order.term > newer[-1].term:
            newer.append(order)
        later = next((other for other in newer if other.term > order.term), None)
        if later is not None and order.at > later.at + seconds:
            text = f"{_named(order)}; {later.host} acts in term {later.term} since {clock(later.at)}"
            yield _violation("4.term", later, order, text)


def _violation(rule: str, before: Acted, order: Acted, text: str) -> Violation:
    return Violation(rule=rule, at=order.at, text=text, entries=(before, order))


def repeats(history: Iterable[Entry], most: int, seconds: float = 1.0) -> list[Violation]:
    """Orders that a node accepted more than `most` times within `seconds`. Orders without a subject are not looked at.

    Reports each order once. For rule 5, whose other parts are checked where the daemons run.
    """
    recent: dict[tuple[str, str, str], deque[Acted]] = {}
    reported: dict[tuple[str, str, str], Violation] = {}
    for order in history:
        if not isinstance(order, Acted) or not order.subject:
            continue
        key = (order.node, order.kind, order.subject)
        times = recent.setdefault(key, deque())
        times.append(order)
        while times[0].at <= order.at - seconds:
            times.popleft()
        if len(times) > most and key not in reported:
            since = clock(times[0].at)
            text = f"{order.node} was sent {order.kind} of {order.subject} {len(times)} times from {since} on"
            reported[key] = Violation(rule="5.repeats", at=order.at, text=text, entries=tuple(times))
    return list(reported.values())
