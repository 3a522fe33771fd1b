"""What must hold of every history: pure functions of what clients and nodes wrote, and of what is read at the end.

`check` runs all rules. The first digit is the promise: 1 durable, 2 linearizable, 3 starts and owners, 4 one
controller, 5 bounded work, 6 liveness, 7 planned starts.

| rule | holds if | module |
|---|---|---|
| 1.exists | an acknowledged job exists once, one of unknown outcome at most once, a refused one never | `durability` |
| 1.script | scripts and environments are as submitted, in the controller and as launched | `durability` |
| 1.change | acknowledged cancels, holds, releases and updates are in force at the end | `changes` |
| 2.order | requests and readings of each job are linearizable | `consistency` |
| 2.undecided | the search of 2.order came to an end within its budget | `consistency` |
| 3.unknown | what begins on a node was submitted | `starts` |
| 3.once | a step of a life begins once on a node, a script on one node | `starts` |
| 3.life | nothing of an earlier life begins after a later one | `starts` |
| 3.cancelled, 3.held, 3.begin | nothing begins after its cancel, during a hold, before its begin time | `starts` |
| 3.drained | no job starts on a node that is drained | `starts` |
| 3.dependency | nothing begins before its dependencies are satisfied | `dependencies` |
| 3.throttle, 3.licences, 3.limit | array throttles, licences, limits of accounts and QOS are kept | `limits` |
| 3.reservation | nodes of a reservation are used by its jobs alone, and these stay inside it | `reservations` |
| 3.cpu, 3.gres, 3.memory, 3.port, 3.exclusive | nothing has two owners at one time | `owners` |
| 3.ended, 3.suspended | nodes obey orders that they have accepted: ends and suspensions | `orders` |
| 3.again | a job whose script has ended is not run again | `ends` |
| 3.exit, 3.time | exit codes are those that nodes saw; jobs end at their time limit | `ends` |
| 6.suspended, 6.begun, 6.killed, 6.answer | what was decided reaches nodes and clients in time | `arrivals`, `links` |
| 6.step | a step begins when it fits into its job | `steps` |
| 6.abandoned, 6.lost | allocations end with their clients; machines without power are shown as DOWN | `arrivals` |
| 4.term, 4.leader, 4.takeover | two controllers never both act | `terms` |
| 3.trigger, 6.trigger | the program of a trigger runs at most once, after the event; and it runs | `triggers` |
| 5.signal | the signal of --signal comes in time | `ends` |
| 5.forgotten | jobs are forgotten MinJobAge after their end | `liveness` |
| 5.repeats | no order is repeated too often (`repeats`; not part of `check`) | `terms` |
| 6.answer, 6.completing, 6.running, 6.pending, 6.processes | at the end everything has moved on | `liveness` |
| 6.ended | a batch job is over when its script is | `ends` |
| 6.accounting, 6.usage | accounting's records are the truth; fair-share counts what they say | `accounts` |
| 7.promise | the planned start of the first blocked job is kept | `promises` |

`story` and `final` are what the rules look up, `faults` and `values` what they must allow for, `violation` what they
say.

The rest of rule 4 (images, replay) and rule 5 (deadlines, bounds, work of a turn) is checked where the daemons run.

A rule reports only what no correct cluster could have done: requests of unknown outcome may have taken effect or not,
clocks may be wrong by `Final.clock_error_seconds`, and orders and reports take time (`Rules.order_seconds`). Where that
leaves two possibilities, nothing is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz_testing.daemons.checks.accounts import accounts
from spritz_testing.daemons.checks.arrivals import arrivals
from spritz_testing.daemons.checks.changes import changes_in_force
from spritz_testing.daemons.checks.consistency.linearizable import BUDGET, Linearizability, linearizability
from spritz_testing.daemons.checks.dependencies import dependencies
from spritz_testing.daemons.checks.durability import durability
from spritz_testing.daemons.checks.ends import ends
from spritz_testing.daemons.checks.final import Final, Limit, NodeShape, Rules
from spritz_testing.daemons.checks.limits import limits, reached
from spritz_testing.daemons.checks.liveness import liveness
from spritz_testing.daemons.checks.orders import orders
from spritz_testing.daemons.checks.owners import owners
from spritz_testing.daemons.checks.promises import promises
from spritz_testing.daemons.checks.reservations import reservations
from spritz_testing.daemons.checks.starts import starts
from spritz_testing.daemons.checks.steps import steps
from spritz_testing.daemons.checks.story import Story
from spritz_testing.daemons.checks.terms import repeats, terms
from spritz_testing.daemons.checks.triggers import triggers
from spritz_testing.daemons.checks.violation import Violation

if TYPE_CHECKING:
    from spritz_testing.daemons.history import History

__all__ = [
    "Final",
    "Limit",
    "Linearizability",
    "NodeShape",
    "Rules",
    "Story",
    "Violation",
    "check",
    "linearizability",
    "reached",
    "repeats",
]

_RULES = (
    durability,
    changes_in_force,
    starts,
    dependencies,
    limits,
    reservations,
    owners,
    orders,
    ends,
    arrivals,
    steps,
    terms,
    liveness,
    accounts,
    promises,
    triggers,
)


def check(history: History, final: Final, budget: int = BUDGET) -> list[Violation]:
    """All violations, the earliest first. `budget`: of rule 2 for each job, in trials; see `linearizability`."""
    story = Story(history.entries, final)
    violations = [violation for rule in _RULES for violation in rule(story)]
    violations += linearizability(story, budget).violations
    return sorted(violations, key=lambda violation: (violation.at, violation.rule, violation.text))
