"""`Machine.check` answers what `handle` answers, and leaves no trace: before each command of random conversations.

Not the image alone must be the same, but every index, count and deadline; caches may fill.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from msgspec import Struct
from tests.property.test_core_machine import Conversation

from spritz.core.copied import copied
from spritz.core.invariants import breaches
from spritz.core.machine import Outcome
from spritz.model.cluster import Caller
from spritz.model.commands.job import SubmitJob
from spritz.testing.builders import ALICE, ROOT, World, job_spec

#: Attributes that only keep what can be worked out again, and heaps, whose superseded entries go when they are seen.
CACHES = frozenset(
    {"node_groups", "segments", "features", "_heap", "_job_limits_cache", "_bounds", "_coordinated", "_policy"}
)


def contents(value: Any) -> Any:
    """All that is in it, in order, as plain values that compare."""
    kind = type(value)
    if kind is dict:
        return [(key, contents(item)) for key, item in value.items()]
    if isinstance(value, Struct) or not kind.__module__.startswith("spritz."):
        return value if not isinstance(value, list) else [contents(item) for item in value]
    slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
    names = [name for name in (*slots, *getattr(value, "__dict__", ())) if name not in CACHES and hasattr(value, name)]
    return [(name, contents(getattr(value, name))) for name in names]


class CheckedWorld(World):
    """Asks `check` before every command."""

    def do(self, command: Struct, caller: Caller = ROOT) -> Outcome:
        machine = self.machine
        version, image, before = machine.state.version, machine.image(), contents(machine.state)
        checked = machine.check(command, self.now, caller)
        assert machine.state.version == version, f"{command} was recorded"
        assert machine.image() == image, f"{command} has left a trace"
        assert contents(machine.state) == before, f"{command} has changed the state outside the image"
        outcome = super().do(command, caller)
        assert checked.reply == outcome.reply
        assert not checked.events or checked == outcome
        return outcome


class CheckedConversation(Conversation):
    world_kind = CheckedWorld


CheckedConversation.TestCase.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCheckedConversation = CheckedConversation.TestCase


def test_a_copy_is_equal_and_shares_nothing_that_changes() -> None:
    world = World(nodes=2)
    running = world.submit()
    world.start(running, "n1")
    world.step(running)
    world.submit(array="0-3%2")
    before = contents(world.state)
    copy = copied(world.state)
    assert contents(copy) == before
    assert copy.usage is copy.minutes.usage, "two names for one object"
    assert breaches(copy) == []
    other = World(nodes=2)
    other.machine.state = copy
    other.now = world.now
    other.cancel(running)
    other.submit()
    other.lose("n2")
    assert contents(world.state) == before


def test_what_would_be_refused_or_is_only_tested_needs_no_copy() -> None:
    """So `--test-only` and requests that nothing could serve cost the same however many jobs there are."""
    world = World(nodes=1)
    state = world.state
    dry = SubmitJob(spec=job_spec(), script=b"#!", test_only=True)
    refused = SubmitJob(spec=job_spec(partitions=("nope",)), script=b"#!")
    state.jobs = Uncopied(state.jobs)
    assert world.machine.check(dry, world.now, ALICE).rejection is None
    assert world.machine.check(refused, world.now, ALICE).rejection is not None


class Uncopied(dict[int, Any]):
    """Fails when it is copied: it is no kind of container that a state has."""
