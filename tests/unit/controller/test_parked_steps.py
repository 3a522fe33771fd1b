"""Steps that wait for others to end: one request that fails does not take the others with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from spritz.controller.api.deferred import DeferredRequests
from spritz.model.commands.step import CreateStep
from spritz.model.events.step import StepEnded
from spritz.model.job.step import StepSpec
from spritz.model.rejection import Rejection
from spritz.model.states import JobState
from tests.unit.controller.heard import Heard


class Parked:
    """A request of a caller that waits."""

    abandoned = False

    def __init__(self) -> None:
        self.crashes = 0
        self.replies: list[Struct | None] = []

    def on_abandon(self, callback: Any) -> None:
        """This caller never goes away."""

    def crashed(self, error: Exception) -> None:
        self.crashes += 1

    def reply(self, body: Struct | None = None) -> None:
        self.replies.append(body)


def test_a_step_that_the_core_fails_on_does_not_lose_those_that_wait_behind_it() -> None:
    heard, hooks = Heard(), list[Any]()
    faulty, behind = Parked(), Parked()
    retrying = False

    def handle(command: CreateStep, caller: Any, then: Any) -> Struct:
        if not retrying:
            return Rejection(code="ESLURM_NODES_BUSY")
        if command.spec.name == "faulty":
            raise KeyError("a fault of the core")
        then(answer := Rejection(code="ESLURM_DISABLED"))
        return answer

    context: Any = SimpleNamespace(
        machines=None,
        machine=SimpleNamespace(state=SimpleNamespace(jobs={}, steps={})),
        identity=SimpleNamespace(caller=lambda call: None),
        writer=SimpleNamespace(listeners=heard, hooks=hooks, handle=handle),
        counters=[],
    )
    waiting = DeferredRequests(context)
    calls: list[Any] = [faulty, behind]
    for call, name in zip(calls, ("faulty", "behind"), strict=True):
        waiting.create_step(CreateStep(job_id=5, spec=StepSpec(name=name), wait=True), call)
    retrying = True
    heard.inform([StepEnded(at=1.0, job_id=5, step_id=0, node="n1", state=JobState.COMPLETED)])
    (look,) = hooks
    look()
    assert (faulty.crashes, len(behind.replies)) == (1, 1)
