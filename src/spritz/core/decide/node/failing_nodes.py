"""Drain a node on which one job after the other fails at once, before it takes the whole queue.

A node without its file system or with a broken GPU fails jobs within seconds, so it is nearly always free, and nearly
every job of the queue is started there. The daemon of such a node answers and its prolog succeeds: only the jobs can
tell. A broken job fails at once, too, on any node. So these two are distinguished:

- The last `drain_failing_nodes` scripts that ended on the node all failed within `failing_node_seconds` of their start.
- They were of two users or more, whose jobs have failed in this way on no other node since one of theirs ended
  otherwise.

Only jobs of one node count: which node of several failed a job is not known. Nodes that begin to fail at the same time
count as broken jobs: it is worse to drain nodes that work. Broken jobs of two users that happen to meet on one
node drain that node, and no second one, since these users' jobs fail on two nodes then.

Source: Slurm has no such option; LSF closes a host by its job exit rate (EXIT_RATE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.decide.node.states import node_trouble
from spritz.model.node_daemon.reports import NodeTrouble

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.model.job.record import Job

#: Users whose jobs must have failed: one user's jobs may all have the same fault.
_USERS_MIN = 2


def script_ended(context: DecisionContext, job: Job, node: str, *, failed: bool | None) -> None:
    """The script of a job has ended on a node. `job`: its record. Drains a node that fails jobs.

    `failed`: whether it ended by itself with another exit status than 0; None: it was ended, by its time limit, its
    user or for want of memory, which tells of the node only if it has run for long.
    """
    settings, failures = context.state.settings, context.state.memory.failures
    most = settings.drain_failing_nodes
    if not most or not job.started_at:
        return
    uid = job.spec.uid
    seconds = context.now - job.started_at
    if failed is False or seconds > settings.failing_node_seconds:
        failures.by_node.pop(node, None)
        failures.node_of.pop(uid, None)
        return
    if failed is None or seconds < 0:  # the clock was set back meanwhile
        return
    if job.allocation is None or len(job.allocation.nodes) > 1:
        return
    counts = failures.by_node.setdefault(node, {})
    counts[uid] = counts.get(uid, 0) + 1
    if failures.node_of.setdefault(uid, node) != node:
        failures.node_of[uid] = ""
    here = [count for uid, count in counts.items() if failures.node_of.get(uid) == node]
    if sum(here) >= most and len(here) >= _USERS_MIN:
        del failures.by_node[node]
        reason = f"jobs fail at once: {sum(here)} in a row within {settings.failing_node_seconds} seconds"
        node_trouble(context, NodeTrouble(name=node, reason=reason))
