"""A decision is a transaction, and only its events change the state: before and after each command of random
conversations.

`Machine.check` answers what `handle` answers and leaves no trace, whatever it has recorded: not the image alone must be
the same, but every index, count and deadline. What `handle` leaves is what its events make of the former state.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from msgspec import Struct
from tests.property.test_core_machine import Conversation

from spritz.core.machine import Machine, Outcome
from spritz.core.undo import Jobs
from spritz.model.cluster.settings import Caller
from spritz_testing.builders import ROOT, World

#: Attributes that only keep what can be worked out again, heaps, whose superseded entries go when they are seen, and
#: the way back.
CACHES = frozenset(
    {"node_groups", "segments", "features", "_heap", "_job_limits_cache", "_bounds", "_coordinated", "_policy", "undo"}
)

#: What decisions change without an event: `core.memory`, and when limits on minutes are looked at again.
NO_EVENTS = frozenset({"memory", "minute_deadlines"})


def contents(value: Any, without: frozenset[str] = CACHES) -> Any:
    """All that is in it, as plain values that compare; entries of dicts in no order, but sets of jobs in theirs."""
    kind = type(value)
    if kind is Jobs:
        return list(value)
    if kind is set:
        return set(value)
    if kind is dict:
        return {key: contents(item) for key, item in value.items()}
    if isinstance(value, Struct) or not kind.__module__.startswith("spritz."):
        return value if not isinstance(value, list) else [contents(item) for item in value]
    slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
    names = [name for name in (*slots, *getattr(value, "__dict__", ())) if name not in without and hasattr(value, name)]
    return {name: contents(getattr(value, name)) for name in names}


class CheckedWorld(World):
    """Asks `check` before every command, and replays what it did."""

    replays: Machine | None = None
    replayed: Machine

    def do(self, command: Struct, caller: Caller = ROOT) -> Outcome:
        machine = self.machine
        if self.replays is not machine:  # at first, and after a restart
            self.replays, self.replayed = machine, Machine.from_image(machine.image())
        before = contents(machine.state)
        checked = machine.check(command, self.now, caller)
        after = contents(machine.state)
        assert after == before, f"{command} has left a trace in {differing(after, before)}"
        outcome = super().do(command, caller)
        assert checked == outcome
        for event in outcome.events:
            self.replayed.apply(event)
        left, made = (contents(each.state, CACHES | NO_EVENTS) for each in (machine, self.replayed))
        assert left == made, f"{command} has changed {differing(left, made)} without an event"
        return outcome


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [name for name in one if one[name] != other[name]]


class CheckedConversation(Conversation):
    world_kind = CheckedWorld


CheckedConversation.TestCase.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCheckedConversation = CheckedConversation.TestCase
