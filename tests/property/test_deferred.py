"""Requests that wait for a job or for a step: arrivals, abandonments and ends in any order.

The requests are answered by `DeferredRequests` on a real core. After every turn, no request waits that could be
answered, steps are granted first come, first served, and nothing is kept for callers that have gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from tests.unit.controller.heard import Heard

from spritz.client.channel.handling import DEFERRED, Call, Handlers
from spritz.controller.api import deferred
from spritz.controller.api.deferred import DeferredRequests
from spritz.core.machine import Outcome
from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.commands.step import STEP_WAITS, CreateStep, StepCreated
from spritz.model.job.step import StepSpec
from spritz.model.queries.allocations import AwaitAllocation
from spritz.model.queries.jobs import AwaitEnd
from spritz.model.rejection import Rejection
from spritz.model.states import JobState
from spritz_testing.builders import ALICE, World, capacity

CPUS = 4


class Answered(Call):
    """A call whose answers are kept as they are, before they are encoded."""

    def __init__(self, channel: Any, number: int) -> None:
        super().__init__(Handlers({}), channel, number, "")
        self.answers: list[Any] = []

    def reply(self, body: Struct | None = None) -> None:
        self.answers.append(body)
        super().reply(body)

    def fail(self, error: Any) -> None:
        self.answers.append(error)
        super().fail(error)

    @property
    def settled(self) -> bool:
        return self.answered or self.abandoned


class Asked(NamedTuple):
    """A request, in the order of arrival."""

    call: Answered
    request: Any
    #: whether it found no one before it, when it came
    was_first: bool = True


class Controller:
    """The part of a controller that defers requests. Two jobs with `CPUS` CPUs each run; the others are submitted."""

    def __init__(self) -> None:
        self.world = World(nodes=4, hardware=capacity(cpus=CPUS), settings=ClusterSettings(mpi_ports=(1, 6)))
        self.jobs = [self.world.start(self.world.submit(batch=False), node, cpus=CPUS) for node in ("n1", "n2")]
        self.heard, self.hooks = Heard(), list[Callable[[], None]]()
        self.turn_due = False
        self.releases: list[Callable[[], None]] = []
        context: Any = SimpleNamespace(
            machines=None,
            machine=self.world.machine,
            configuration=SimpleNamespace(settings=SimpleNamespace(inactive_limit_seconds=0)),
            identity=SimpleNamespace(caller=lambda call: ALICE),
            log=SimpleNamespace(info=lambda *words, **fields: None),
            counters=[],
            clock=SimpleNamespace(sleep=asyncio.sleep),
            tasks=SimpleNamespace(spawn_contained=self._spawn),
            writer=SimpleNamespace(
                listeners=self.heard,
                hooks=self.hooks,
                handle=self.handle,
                turn=self._turn,
                when_durable=self.releases.append,
            ),
        )
        self.deferred = DeferredRequests(context)
        self.asked: list[Asked] = []
        self.granted: list[Asked] = []

    def _turn(self) -> None:
        self.turn_due = True

    def _has_work(self) -> bool:
        return self.turn_due or bool(self.releases)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> Any:
        work.close()
        return SimpleNamespace(cancel=lambda: None)

    def handle(self, command: Struct, caller: Caller, then: Callable[[Any], None] | None = None) -> Any:
        """As `SingleWriter.handle`."""
        outcome = self.world.do(command, caller)
        if then is not None:
            self.releases.append(lambda: then(outcome.reply))
        self.heard_of(outcome)
        return outcome.reply

    def heard_of(self, outcome: Outcome) -> Outcome:
        self.turn_due = True
        if outcome.events:
            self.heard.inform(outcome.events)
        return outcome

    async def turns(self) -> None:
        """Turns of the loop, until no further one is wanted."""
        for _ in range(200):
            if not self._has_work():
                await asyncio.sleep(0)  # callbacks for the next turn
                if not self._has_work():
                    return
            self.turn_due = True
            for hook in self.hooks:
                hook()
            self.turn_due = False
            releases, self.releases[:] = list(self.releases), []
            for release in releases:
                release()
        raise AssertionError("the turns do not end")

    # What happens

    def ask(self, request: Any) -> Asked:
        channel: Any = SimpleNamespace(
            answered=lambda number: None,
            send_answer=lambda frame: None,
            statistics=None,
            is_open=True,
            on_close=lambda callback: None,
            credentials=None,
        )
        call = Answered(channel, len(self.asked) + 1)
        asked = Asked(call, request, not any(True for _ in self.waiting_steps(request.job_id)))
        self.asked.append(asked)
        handlers: dict[Any, Callable[[Any, Call], Any]] = {
            CreateStep: self.deferred.create_step,
            AwaitAllocation: self.deferred.await_allocation,
            AwaitEnd: self.deferred.await_end,
        }
        reply = handlers[type(request)](request, call)
        if reply is not DEFERRED:
            call.reply(reply)
        return asked

    def ask_step(self, place: int, cpus: int, *, wait: bool = True, ports: int | None = None) -> Asked:
        spec = StepSpec(
            argv=("true",), tasks=cpus, exact=True, exclusive=True, ports=ports, io_key=f"k{len(self.asked)}"
        )
        return self.ask(CreateStep(job_id=self.jobs[place], spec=spec, wait=wait))

    def waiting_steps(self, job_id: int) -> list[Asked]:
        return [
            asked
            for asked in self.asked
            if isinstance(asked.request, CreateStep) and asked.request.job_id == job_id and not asked.call.settled
        ]

    def live_steps(self) -> list[tuple[int, int]]:
        return [(job_id, step_id) for job_id, steps in self.world.state.steps.items() for step_id in steps]

    def end_step(self, place: int) -> None:
        live = self.live_steps()
        if live:
            job_id, step_id = live[place % len(live)]
            self.heard_of(self.world.finished(job_id, step_id=step_id, gone=False))

    def check(self) -> None:
        """After the turns: no request waits that could be answered, and only requests that are still wanted wait."""
        for job_id in self.jobs:
            waiting = self.waiting_steps(job_id)
            if waiting:
                trial = self.world.machine.check(waiting[0].request, self.world.now, ALICE)
                assert isinstance(trial.reply, Rejection), f"{waiting[0].request.spec.io_key} fits, and waits"
                assert trial.reply.code in STEP_WAITS
        state = self.world.state
        for asked in self.asked:
            if asked.call.settled or isinstance(asked.request, CreateStep):
                continue
            job = state.jobs[asked.request.job_id]
            awaited = job.state is JobState.PENDING if isinstance(asked.request, AwaitAllocation) else True
            assert awaited, f"{asked.request} waits for a job that is {job.state}"
            assert not job.state.ended, f"{asked.request} waits for a job that is {job.state}"
        unsettled = sum(not asked.call.settled for asked in self.asked)
        assert self.deferred.waiting == unsettled, "a request is kept whose caller has gone, or one is lost"
        self._check_order()

    def _check_order(self) -> None:
        for asked in self.asked:
            if isinstance(asked.request, CreateStep) and asked.call.answers and asked not in self.granted:
                (answer,) = asked.call.answers
                if isinstance(answer, StepCreated):
                    self.granted.append(asked)
                elif not asked.request.wait and asked.was_first:
                    assert answer.code in STEP_WAITS
        for job_id in self.jobs:
            places = [
                self.asked.index(asked)
                for asked in self.granted
                if asked.request.job_id == job_id and not asked.request.again
            ]
            assert places == sorted(places), "a later request was granted first"


_place = st.integers(0, 30)
_moments = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 1), st.integers(1, CPUS), st.booleans(), st.integers(0, 5)),
        st.tuples(st.just("end"), _place),
        st.tuples(st.just("abandon"), _place),
        st.tuples(st.just("turn")),
        st.tuples(st.just("repeat"), _place),
        st.tuples(st.just("submit"), st.booleans()),
        st.tuples(st.just("await"), st.sampled_from((AwaitAllocation, AwaitEnd)), _place),
        st.tuples(st.just("cancel"), _place),
    ),
    max_size=40,
)


async def _happen(controller: Controller, moment: tuple[Any, ...]) -> None:
    world = controller.world
    match moment:
        case ("step", place, cpus, wait, ports):
            controller.ask_step(place, cpus, wait=wait, ports=None if ports > 3 else ports)
        case ("end", place):
            controller.end_step(place)
        case ("abandon", place):
            waiting = [asked for asked in controller.asked if not asked.call.settled]
            if waiting:
                waiting[place % len(waiting)].call.abandon()
        case ("turn",):
            await controller.turns()
            controller.check()
        case ("repeat", place):
            # The connection of the client breaks, and it asks again.
            steps = [asked for asked in controller.asked if isinstance(asked.request, CreateStep)]
            if steps:
                asked = steps[place % len(steps)]
                asked.call.abandon()
                controller.ask(replace(asked.request, wait=True, again=True))
        case ("submit", interactive):
            controller.heard_of(world.submit_outcome(batch=not interactive, interactive=interactive))
        case ("await", kind, place):
            known = sorted(world.state.jobs)
            controller.ask(kind(job_id=known[place % len(known)]))
        case ("cancel", place):
            others = sorted(set(world.state.jobs) - set(controller.jobs))
            if others:
                controller.heard_of(world.cancel(others[place % len(others)]))


@settings(max_examples=200, deadline=None)
@given(_moments)
def test_no_request_waits_that_could_be_answered(moments: list[tuple[Any, ...]]) -> None:
    async def story() -> None:
        controller = Controller()
        for moment in moments:
            await _happen(controller, moment)
        await controller.turns()
        controller.check()
        # When all steps end, one after the other, every request for a step is answered.
        for _ in range(3 * len(moments)):
            controller.end_step(0)
            await controller.turns()
            controller.check()
        assert not any(controller.waiting_steps(job_id) for job_id in controller.jobs)
        controller.world.check()

    asyncio.run(story())


def test_a_request_behind_one_that_was_abandoned_is_tried_at_once() -> None:
    """srun A waits, the user presses Ctrl-C, and srun B fits. No step ends meanwhile."""

    async def story() -> None:
        controller = Controller()
        controller.ask_step(0, 2)
        big, small = controller.ask_step(0, 3), controller.ask_step(0, 1)
        await controller.turns()
        assert not any(asked.call.settled for asked in (big, small))
        big.call.abandon()
        await controller.turns()
        assert isinstance(small.call.answers[0], StepCreated)
        at_once = controller.ask_step(0, 1, wait=False)
        await controller.turns()
        assert isinstance(at_once.call.answers[0], StepCreated), "no request is before it"

    asyncio.run(story())


def test_a_repeated_request_whose_step_exists_does_not_wait_behind_those_that_wait_for_the_step() -> None:
    """After a restart of the controller, the client of a running step may be the last to ask again."""

    async def story() -> None:
        controller = Controller()
        running, waiting = controller.ask_step(0, CPUS), controller.ask_step(0, CPUS)
        await controller.turns()
        again = controller.ask(replace(running.request, wait=True, again=True))
        await controller.turns()
        assert isinstance(again.call.answers[0], StepCreated)
        assert not waiting.call.settled

    asyncio.run(story())


def test_many_requests_that_must_be_refused_are_all_answered_though_one_turn_tries_a_few() -> None:
    async def story() -> None:
        controller = Controller()
        controller.ask_step(0, CPUS)
        calls = [controller.ask_step(0, CPUS) for _ in range(3 * deferred.RETRIES_MAX)]
        await controller.turns()
        job_id = controller.jobs[0]
        controller.heard_of(controller.world.cancel(job_id))
        controller.heard_of(controller.world.finished(job_id, step_id=0))
        await controller.turns()
        assert all(asked.call.settled for asked in calls)

    asyncio.run(story())


def test_a_waiting_job_is_cancelled_when_the_last_of_its_waiting_clients_has_gone() -> None:
    """`scontrol wait_job` next to salloc: its Ctrl-C leaves the job alone."""

    async def story() -> None:
        controller = Controller()
        outcome = controller.heard_of(controller.world.submit_outcome(batch=False, interactive=True))
        reply: Any = outcome.reply
        salloc, wait_job = (controller.ask(AwaitAllocation(job_id=reply.job_id)) for _ in range(2))
        wait_job.call.abandon()
        await controller.turns()
        assert controller.world.job(reply.job_id).state is JobState.PENDING
        salloc.call.abandon()
        await controller.turns()
        assert controller.world.job(reply.job_id).state is JobState.CANCELLED

    asyncio.run(story())


def test_an_end_in_an_awaited_array_looks_at_no_other_task() -> None:
    """`sbatch --wait` of a large array: only its last end is answered, and only this one reads all tasks."""

    async def story() -> None:
        controller = Controller()
        world = controller.world
        outcome = controller.heard_of(world.submit_outcome(array="0-5"))
        reply: Any = outcome.reply
        asked = controller.ask(AwaitEnd(job_id=reply.job_id))
        await controller.turns()
        reads: list[int] = []

        class Counted(dict[int, Any]):
            def values(self) -> Any:
                reads.append(len(self))
                return super().values()

        running = [world.start(reply.job_id, f"n{3 + task % 2}", task=task) for task in range(6)]
        world.state.arrays[reply.job_id] = Counted(world.state.arrays[reply.job_id])
        for job_id in running:
            assert not asked.call.settled
            controller.heard_of(world.finished(job_id))
            await controller.turns()
        assert asked.call.settled
        assert len(reads) < 6

    asyncio.run(story())


def test_answers_to_many_requests_for_one_job_are_sent_a_few_in_a_turn() -> None:
    async def story() -> None:
        controller = Controller()
        reply: Any = controller.heard_of(controller.world.submit_outcome()).reply
        asked = [controller.ask(AwaitEnd(job_id=reply.job_id)) for _ in range(3 * deferred.ANSWERS_MAX + 7)]
        controller.heard_of(controller.world.cancel(reply.job_id))
        await controller.turns()
        answered: list[int] = []
        while not answered or answered[-1] < len(asked):
            answered.append(sum(asked.call.answered for asked in asked))
            await asyncio.sleep(0)
        assert answered[0] <= 2 * deferred.ANSWERS_MAX  # `turns` has let the loop turn once
        assert max(later - before for before, later in pairwise(answered)) <= deferred.ANSWERS_MAX

    asyncio.run(story())
