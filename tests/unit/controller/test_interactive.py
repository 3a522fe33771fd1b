"""Jobs that clients hold, and requests that wait for a job: what each lost client, and each late event, leads to.

`DeferredRequests` on a real core; connections, processes and the clock are the test's.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import subprocess
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct

from spritz.client.channel.handling import DEFERRED
from spritz.controller.api import deferred
from spritz.controller.api.deferred import ANSWERS_MAX, GRACE_SECONDS, RETURN_SECONDS, DeferredRequests
from spritz.core.machine import Outcome
from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.commands.job import JobSubmitted
from spritz.model.commands.step import CreateStep, StepCreated
from spritz.model.job.step import StepSpec
from spritz.model.node_daemon.reports import NodePrologEnded
from spritz.model.queries.allocations import AllocationGranted, AwaitAllocation
from spritz.model.queries.jobs import AwaitEnd, JobEndedReply
from spritz.model.states import JobState
from spritz_testing.builders import ALICE, World, capacity, expect
from tests.unit.controller.heard import Heard


class Clock:
    """Stands still until the test lets time pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        wakes: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._numbers), wakes))
        await wakes

    async def advance(self, seconds: float) -> None:
        for _ in range(3):
            await asyncio.sleep(0)  # tasks that have just been made begin to sleep
        until = self.now + seconds
        while self._sleepers and self._sleepers[0][0] <= until:
            self.now, _number, wakes = heapq.heappop(self._sleepers)
            if not wakes.done():
                wakes.set_result(None)
            for _ in range(3):
                await asyncio.sleep(0)
        self.now = until


class Client:
    """A connection with its request. `pid`: of its process, if the kernel has told."""

    def __init__(self, pid: int = 0) -> None:
        self.caller = SimpleNamespace(pid=pid) if pid else None
        self.channel = self
        self.is_open = True
        self.abandoned = False
        self.answers: list[Any] = []
        self._callbacks: list[Callable[[], None]] = []

    def reply(self, body: Struct | None = None) -> None:
        self.answers.append(body)

    fail = reply

    def on_abandon(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(lambda: None if self.answers else callback())

    def on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def leave(self) -> None:
        """Its connection closes."""
        self.is_open = False
        self.abandoned = not self.answers
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Controller:
    def __init__(self, world: World | None = None) -> None:
        self.world = world or World(nodes=2, hardware=capacity(cpus=4), settings=ClusterSettings(mpi_ports=(1, 4)))
        self.clock, self.heard = Clock(), Heard()
        self.hooks: list[Callable[[], None]] = []
        #: what waits for the group on its way to the disk
        self.releases: list[Callable[[], None]] = []
        self.tasks: set[asyncio.Task[None]] = set()
        context: Any = SimpleNamespace(
            machines=None,
            machine=self.world.machine,
            configuration=SimpleNamespace(settings=SimpleNamespace(inactive_limit_seconds=0)),
            identity=SimpleNamespace(caller=lambda call: ALICE),
            log=SimpleNamespace(info=lambda *words, **fields: None),
            counters=[],
            clock=self.clock,
            tasks=SimpleNamespace(spawn_contained=self._spawn),
            writer=SimpleNamespace(
                listeners=self.heard,
                hooks=self.hooks,
                handle=self.handle,
                turn=lambda: None,
                when_durable=self.releases.append,
            ),
        )
        self.deferred = DeferredRequests(context)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        return task

    def handle(self, command: Struct, caller: Caller, then: Callable[[Any], None] | None = None) -> Any:
        outcome = self.heard_of(self.world.do(command, caller))
        if then is not None:
            self.releases.append(lambda: then(outcome.reply))
        return outcome.reply

    def heard_of(self, outcome: Outcome) -> Outcome:
        self.heard.inform(outcome.events)
        return outcome

    def turn(self) -> None:
        """The end of a turn of the loop: hooks run. Nothing is on disk yet."""
        for hook in self.hooks:
            hook()

    def commit(self) -> None:
        """The group is on disk."""
        self.turn()
        releases, self.releases[:] = list(self.releases), []
        for release in releases:
            release()

    # Users

    def salloc(self, **fields: Any) -> int:
        outcome = self.heard_of(self.world.submit_outcome(batch=False, interactive=True, **fields))
        return expect(outcome.reply, JobSubmitted).job_id

    def start(self, job_id: int, node: str = "n1") -> None:
        events = len(self.world.events)
        self.world.start(job_id, node)
        self.heard.inform(self.world.events[events:])

    def wait(self, job_id: int, client: Client | None = None, **fields: Any) -> Client:
        client = client or Client()
        call: Any = client
        assert self.deferred.await_allocation(AwaitAllocation(job_id=job_id, **fields), call) is DEFERRED
        return client

    def held(self, client: Client | None = None) -> tuple[int, Client]:
        """A running job whose client has the grant."""
        job_id = self.salloc()
        self.start(job_id)
        self.heard_of(self.world.do(NodePrologEnded(node="n1", job_id=job_id, restart_count=0)))
        client = self.wait(job_id, client)
        self.commit()
        assert isinstance(client.answers[0], AllocationGranted)
        return job_id, client

    def state(self, job_id: int) -> JobState:
        return self.world.job(job_id).state


PENDING, RUNNING, CANCELLED = JobState.PENDING, JobState.RUNNING, JobState.CANCELLED


def run(story: Callable[[Controller], Awaitable[None]], make: Callable[[], Controller] = Controller) -> None:
    async def main() -> None:
        controller = make()
        await story(controller)
        for task in controller.tasks:
            task.cancel()
        await asyncio.gather(*controller.tasks, return_exceptions=True)

    asyncio.run(main())


# Nothing is told before it is durable


@pytest.mark.parametrize("asked", ["before the start", "after it"])
def test_a_grant_is_told_when_the_start_is_durable(asked: str) -> None:
    async def story(controller: Controller) -> None:
        job_id = controller.salloc()
        if asked == "before the start":
            client = controller.wait(job_id)
            controller.start(job_id)
        else:
            controller.start(job_id)
            client = controller.wait(job_id)
        controller.turn()
        assert client.answers == []
        controller.commit()
        assert len(client.answers) == 1

    run(story)


def test_an_end_is_told_when_it_is_durable() -> None:
    async def story(controller: Controller) -> None:
        job_id = controller.world.submit()
        client: Any = Client()
        controller.deferred.await_end(AwaitEnd(job_id=job_id), client)
        controller.heard_of(controller.world.cancel(job_id))
        controller.turn()
        assert client.answers == []
        controller.commit()
        assert client.answers == [JobEndedReply(job_id=job_id, state="CANCELLED", exit_status=0)]

    run(story)


@pytest.mark.parametrize("asked", ["before the start", "after it"])
def test_a_client_that_leaves_between_the_start_and_its_commit_holds_no_job(asked: str) -> None:
    async def story(controller: Controller) -> None:
        job_id = controller.salloc()
        if asked == "before the start":
            client = controller.wait(job_id)
            controller.start(job_id)
        else:
            controller.start(job_id)
            client = controller.wait(job_id)
        controller.turn()
        client.leave()
        controller.commit()
        assert controller.state(job_id) is CANCELLED

    run(story)


def test_one_answer_that_fails_keeps_no_other_from_its_client() -> None:
    async def story(controller: Controller) -> None:
        job_id = controller.world.submit()
        clients: list[Any] = [Client() for _ in range(2 * ANSWERS_MAX + 1)]
        for client in clients:
            controller.deferred.await_end(AwaitEnd(job_id=job_id), client)

        def broken(body: Struct | None = None) -> None:
            raise ValueError("a fault")

        clients[0].reply = broken
        controller.heard_of(controller.world.cancel(job_id))
        with pytest.raises(ValueError, match="a fault"):  # the writer contains it
            controller.commit()
        answered = []
        for _ in range(4):
            answered.append(sum(bool(client.answers) for client in clients))
            await asyncio.sleep(0)
        assert answered == [0, ANSWERS_MAX, 2 * ANSWERS_MAX, 2 * ANSWERS_MAX]

    run(story)


def test_answers_that_fall_due_while_others_are_sent_wait_for_their_turn() -> None:
    async def story(controller: Controller) -> None:
        jobs = [controller.world.submit() for _ in range(2)]
        clients: list[Any] = [Client() for _ in range(3 * ANSWERS_MAX)]
        for place, client in enumerate(clients):
            controller.deferred.await_end(AwaitEnd(job_id=jobs[place // (2 * ANSWERS_MAX)]), client)
        for job_id in jobs:
            controller.heard_of(controller.world.cancel(job_id))
            controller.commit()
        assert sum(bool(client.answers) for client in clients) == ANSWERS_MAX

    run(story)


# Clients that are lost


def test_a_waiting_job_is_cancelled_with_the_last_client_that_waits_for_it() -> None:
    """A client that connects again may be here twice, until the old connection is found broken."""

    async def story(controller: Controller) -> None:
        job_id = controller.salloc()
        old, new = controller.wait(job_id), controller.wait(job_id)
        old.leave()
        assert controller.state(job_id) is PENDING
        new.leave()
        assert controller.state(job_id) is CANCELLED

    run(story)


def test_a_job_whose_client_never_asks_is_cancelled() -> None:
    async def story(controller: Controller) -> None:
        job_id = controller.salloc()
        await controller.clock.advance(GRACE_SECONDS)
        assert controller.state(job_id) is CANCELLED

    run(story)


def test_a_job_whose_client_waits_no_longer_is_cancelled_unless_it_asks_again() -> None:
    async def story(controller: Controller) -> None:
        jobs = [controller.salloc() for _ in range(2)]
        for job_id in jobs:
            controller.wait(job_id, timeout_seconds=1.0)
        await controller.clock.advance(2.0)
        controller.wait(jobs[0])
        await controller.clock.advance(2 * GRACE_SECONDS)
        assert [controller.state(job_id) for job_id in jobs] == [PENDING, CANCELLED]

    run(story)


def test_a_held_job_is_given_back_when_its_client_does_not_come_back() -> None:
    async def story(controller: Controller) -> None:
        job_id, client = controller.held()
        client.leave()
        await controller.clock.advance(GRACE_SECONDS - 1)
        assert controller.state(job_id) is RUNNING
        await controller.clock.advance(GRACE_SECONDS)
        assert controller.state(job_id) is CANCELLED

    run(story)


def test_a_held_job_stays_while_another_client_of_it_is_connected() -> None:
    async def story(controller: Controller) -> None:
        job_id, client = controller.held()
        controller.wait(job_id)
        controller.commit()
        client.leave()
        await controller.clock.advance(10 * GRACE_SECONDS)
        assert controller.state(job_id) is RUNNING

    run(story)


def test_a_held_job_stays_while_a_step_of_it_runs_but_for_its_container() -> None:
    """A step ends with its srun, so that lives; the container has no client."""

    async def story(controller: Controller) -> None:
        world = controller.world
        job_id, client = controller.held()
        step = world.step(job_id)
        world.started(job_id, step_id=step.step_id)
        client.leave()
        await controller.clock.advance(5 * GRACE_SECONDS)
        assert controller.state(job_id) is RUNNING
        world.finished(job_id, step_id=step.step_id, gone=False)
        await controller.clock.advance(GRACE_SECONDS)
        assert controller.state(job_id) is CANCELLED

    run(story)

    def contained() -> Controller:
        return Controller(World(nodes=1, settings=ClusterSettings(prolog_flags=("Alloc", "Contain"))))

    async def with_container(controller: Controller) -> None:
        job_id, client = controller.held()
        assert controller.world.state.steps[job_id], "its container"
        client.leave()
        await controller.clock.advance(2 * GRACE_SECONDS)
        assert controller.state(job_id) is CANCELLED

    run(with_container, contained)


def test_after_a_restart_clients_have_time_to_come_back() -> None:
    """Who held a job is not journaled, and a client that died meanwhile has no connection that could close."""

    async def story(before: Controller) -> None:
        jobs = [before.salloc() for _ in range(2)]
        for job_id in jobs:
            before.start(job_id)
        after = Controller(before.world)
        await asyncio.sleep(0)
        await after.clock.advance(RETURN_SECONDS - 1)
        after.wait(jobs[0])
        after.commit()
        await after.clock.advance(2)
        assert [after.state(job_id) for job_id in jobs] == [RUNNING, CANCELLED]
        for task in after.tasks:
            task.cancel()

    run(story)


def test_a_job_whose_client_was_killed_is_given_back_at_once_but_not_while_a_step_runs() -> None:
    async def story(controller: Controller) -> None:
        for has_step in (False, True):
            process = subprocess.Popen(["sleep", "1000"])  # noqa: ASYNC220  # it begins at once
            job_id, client = controller.held(Client(process.pid))
            if has_step:
                step = controller.world.step(job_id)
            client.leave()
            await asyncio.sleep(0)
            await controller.clock.advance(GRACE_SECONDS / 10)
            assert controller.state(job_id) is RUNNING, "it has only closed its connection"
            process.kill()
            # a zombie: its number is not given again
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
            await controller.clock.advance(GRACE_SECONDS / 2)
            process.wait()
            assert controller.state(job_id) is (RUNNING if has_step else CANCELLED)
        assert controller.world.state.steps[job_id].keys() == {step.step_id}

    run(story)


def test_another_process_of_the_same_number_holds_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    began = "100"
    monkeypatch.setattr(deferred, "_process_began", lambda pid: began if pid else "")

    async def story(controller: Controller) -> None:
        nonlocal began
        job_id, client = controller.held(Client(4711))
        client.leave()
        await asyncio.sleep(0)
        began = "200"
        await controller.clock.advance(GRACE_SECONDS / 2)
        assert controller.state(job_id) is CANCELLED

    run(story)


# Events under another number


@pytest.mark.parametrize("gone", [True, False])
def test_the_end_of_an_array_is_told_with_that_of_its_last_task(gone: bool) -> None:
    """Not only when the nodes of its tasks are clear: the end of a single job is told before that, too."""

    async def story(controller: Controller) -> None:
        world = controller.world
        array = world.submit(array="0-1")
        tasks = [world.start(array, "n1") for _ in range(2)]
        client: Any = Client()
        controller.deferred.await_end(AwaitEnd(job_id=array), client)
        for number in sorted(tasks):
            assert client.answers == []
            controller.heard_of(world.finished(number, gone=gone))
            controller.commit()
        assert len(client.answers) == 1

    run(story)


def test_a_step_that_waits_for_ports_is_tried_when_a_step_of_another_job_frees_some() -> None:
    async def story(controller: Controller) -> None:
        world = controller.world
        jobs = [world.submit(batch=False) for _ in range(2)]
        for job_id in jobs:
            world.start(job_id, "n1")
        has_ports = world.step(jobs[0], ports=3)
        client: Any = Client()
        wanted = CreateStep(job_id=jobs[1], spec=StepSpec(argv=("true",), ports=3), wait=True)
        controller.deferred.create_step(wanted, client)
        controller.commit()
        assert client.answers == []
        controller.heard_of(world.finished(jobs[0], step_id=has_ports.step_id, gone=False))
        controller.commit()
        controller.commit()
        assert isinstance(client.answers[0], StepCreated)

    run(story)
