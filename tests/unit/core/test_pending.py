"""What is derived from the state for a node that has missed an effect: a story for each kind of effect."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import Struct

from spritz.core import effects as core_effects
from spritz.core.effects import PASSING, Effect, ReloadNode
from spritz.core.machine import Machine, Outcome
from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.commands.cluster import RebootNodes
from spritz.model.commands.job import ResumeJob, SuspendJob
from spritz.model.commands.step import SignalStep
from spritz.model.job.job_filter import JobTarget
from spritz_testing.builders import ALICE, ROOT, World

SETTINGS = ClusterSettings(power=PowerPolicy(reboots=True))
WITH_PROLOG = ClusterSettings(prolog_flags=("Alloc",))


class Watched(World):
    """A world that remembers every effect."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.effects: list[Effect] = []
        super().__init__(nodes=1, settings=settings)

    def do(self, command: Struct, caller: Caller = ROOT) -> Outcome:
        outcome = super().do(command, caller)
        self.effects += outcome.effects
        return outcome

    def run(self) -> int:
        """A job whose script runs on n1."""
        job_id = self.submit()
        self.start(job_id, "n1")
        self.started(job_id)
        return job_id


def start(world: Watched) -> None:
    world.start(world.submit(), "n1")


def create_step(world: Watched) -> None:
    world.step(world.run())


def end_step(world: Watched) -> None:
    job_id = world.run()
    step = world.step(job_id)
    world.started(job_id, step_id=step.step_id)
    world.ok(SignalStep(job_id=job_id, step_id=step.step_id, terminate=True), ALICE)


def cancel(world: Watched) -> None:
    world.cancel(world.run())


def suspend(world: Watched) -> None:
    world.ok(SuspendJob(target=JobTarget(world.run())))


def resume(world: Watched) -> None:
    suspend(world)
    world.now += 60.0
    (job_id,) = world.state.running
    world.ok(ResumeJob(target=JobTarget(job_id)))


def reboot(world: Watched) -> None:
    world.ok(RebootNodes(names=("n1",), asap=True))
    world.advance(1.0)


STORIES: list[tuple[Callable[[Watched], None], type[Effect], ClusterSettings]] = [
    (start, core_effects.LaunchBatchOn, SETTINGS),
    (start, core_effects.LaunchPrologOn, WITH_PROLOG),
    (create_step, core_effects.LaunchStepOn, SETTINGS),
    (end_step, core_effects.TerminateStepOn, SETTINGS),
    (cancel, core_effects.TerminateJobOn, SETTINGS),
    (suspend, core_effects.SuspendOn, SETTINGS),
    (resume, core_effects.SuspendOn, SETTINGS),
    (reboot, core_effects.RebootOn, SETTINGS),
]


def test_every_kind_of_effect_is_derived_or_says_why_not() -> None:
    kinds = {kind for kind in vars(core_effects).values() if isinstance(kind, type) and issubclass(kind, Effect)}
    assert kinds - {Effect} == {kind for _story, kind, _settings in STORIES} | {*PASSING, ReloadNode}


@pytest.mark.parametrize(("story", "kind", "settings"), STORIES, ids=lambda value: getattr(value, "__name__", ""))
def test_an_effect_that_a_node_has_missed_is_derived_for_it_again(
    story: Callable[[Watched], None], kind: type[Effect], settings: ClusterSettings
) -> None:
    world = Watched(settings)
    story(world)
    missed = world.effects[-1]
    assert isinstance(missed, kind)
    derived = [effect for effect in world.machine.pending_effects("n1") if type(effect) is kind]
    assert [named(effect) for effect in derived] == [named(missed)]
    assert Machine.from_image(world.machine.image()).pending_effects() == world.machine.pending_effects()


def named(effect: Effect) -> dict[str, object]:
    """What the effect is about: without the words for it, which only the first message has."""
    fields = {name: getattr(effect, name) for name in effect.__struct_fields__}
    return {name: value for name, value in fields.items() if name not in ("cause", "at", "kill_now")}


def test_a_job_that_never_stood_still_is_not_told_to_go_on() -> None:
    world = Watched(SETTINGS)
    world.run()
    assert world.machine.pending_effects("n1") == []


def test_a_step_that_was_ended_before_it_was_launched_is_only_ended() -> None:
    world = Watched(SETTINGS)
    job_id = world.run()
    step = world.step(job_id)
    world.ok(SignalStep(job_id=job_id, step_id=step.step_id, terminate=True), ALICE)
    found = [
        effect for effect in world.machine.pending_effects("n1") if getattr(effect, "step_id", None) == step.step_id
    ]
    assert [type(effect) for effect in found] == [core_effects.TerminateStepOn]
