"""A step that is asked for again, by a client who has not heard the answer, is made once."""

from __future__ import annotations

from spritz.core import state
from spritz.model.commands.step import CreateStep, StepCreated
from spritz.model.job.step import Step, StepSpec
from spritz_testing.builders import ALICE, BOB, ROOT, World, expect

ASKED = StepSpec(argv=("true",), io_key="k1", environment=(b"SECRET=1",))


def again(world: World, job_id: int, spec: StepSpec = ASKED) -> Step:
    """Ask for it with the word that it was asked for before."""
    return expect(world.do(CreateStep(job_id=job_id, spec=spec, again=True), ALICE).reply, StepCreated).step


def job_of(world: World) -> int:
    """A running allocation."""
    return world.start(world.submit(batch=False, interactive=True))


def test_a_living_step_is_the_answer(world: World) -> None:
    job = job_of(world)
    made = expect(world.do(CreateStep(job_id=job, spec=ASKED), ALICE).reply, StepCreated).step
    outcome = world.do(CreateStep(job_id=job, spec=ASKED, again=True), ALICE)
    assert outcome.reply == StepCreated(step=made)
    assert (outcome.events, outcome.effects) == ((), ())


def test_a_step_that_is_over_is_the_answer_even_to_a_job_that_is_over(world: World) -> None:
    job = job_of(world)
    made = world.step(job, io_key="k1")
    world.finished(job, step_id=made.step_id)
    assert again(world, job).step_id == made.step_id
    assert again(world, job).spec.environment == ()
    world.cancel(job)
    assert again(world, job).step_id == made.step_id


def test_one_that_was_never_made_is_made(world: World) -> None:
    job = job_of(world)
    other = world.step(job, io_key="k0", overlap=True)
    made = again(world, job, StepSpec(argv=("true",), io_key="k1", overlap=True))
    assert made.step_id == other.step_id + 1


def test_without_the_word_it_is_another_step(world: World) -> None:
    job = job_of(world)
    numbers = {world.step(job, io_key="k1", overlap=True).step_id for _ in range(2)}
    assert len(numbers) == 2


def test_another_users_step_is_not_disclosed(world: World) -> None:
    job = job_of(world)
    world.step(job, io_key="k1")
    assert world.refused(CreateStep(job_id=job, spec=ASKED, again=True), BOB) == "ESLURM_ACCESS_DENIED"
    assert expect(world.do(CreateStep(job_id=job, spec=ASKED, again=True), ROOT).reply, StepCreated).step.job_id == job
    elsewhere = job_of(world)
    made = again(world, elsewhere)
    assert made.job_id == elsewhere, "a key counts in its own job alone"


def test_a_bounded_number_of_ended_steps_is_remembered(world: World) -> None:
    job = job_of(world)
    for number in range(state.ENDED_STEPS_MAX + 1):
        made = world.step(job, io_key=f"k{number}")
        world.finished(job, step_id=made.step_id)
    assert len(world.state.ended_steps) == state.ENDED_STEPS_MAX
    assert "k0" not in world.state.ended_steps
    assert "k1" in world.state.ended_steps
