"""srun asks for its step: what it does when the answer takes its time, and when the controller goes away."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from spritz.cli.call.context import Context
from spritz.cli.jobs.launch import controller as launch_controller
from spritz.cli.jobs.launch.controller import Controller
from spritz.cli.jobs.launch.create import create_step
from spritz.cli.jobs.launch.settings import Settings
from spritz.client.channel.handling import DEFERRED, Call, Deferred
from spritz.client.locate import controller_socket_name
from spritz.model.commands.step import CreateStep, StepCreated
from spritz.model.errors import SpritzError
from spritz.model.job.step import Step, StepSpec
from spritz.model.rejection import Rejection
from spritz.stepd.reactor import Reactor
from tests.unit.client.conversation import serving

SPEC = StepSpec(io_key="key")
CREATED = StepCreated(step=Step(job_id=7, step_id=3, spec=SPEC, uid=0, nodes=()))

Answer = Callable[[CreateStep, Call], Struct | Deferred]


class AccessAttributes:
    """A controller that answers each request for a step with the next of its answers."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = f"create{os.getpid()}x{id(self)}"
        self.requests: list[CreateStep] = []
        user = "root" if os.getuid() == 0 else str(os.getuid())
        conf = directory / "slurm.conf"
        conf.write_text(f"ClusterName={self.name}\nSlurmctldHost=localhost\nSlurmctldPort=1\nSlurmUser={user}\n")
        monkeypatch.setenv("SLURM_CONF", str(conf))
        monkeypatch.setattr(launch_controller, "_RETRY_SECONDS", 0.01)
        self.errors = io.StringIO()

    def create(self, *answers: Answer, immediate: bool = False) -> Step:
        """Have srun ask."""
        left = list(answers)

        def handle(request: CreateStep, call: Call) -> Struct | Deferred:
            self.requests.append(request)
            return left.pop(0)(request, call)

        with serving({CreateStep: handle}, controller_socket_name(self.name, 1)):
            context = Context("srun", {}, "/", io.StringIO(), io.StringIO(), self.errors)
            controller = Controller(Reactor())
            try:
                return create_step(controller, 7, SPEC, Settings({}, {}, {}), context, immediate=immediate)
            finally:
                controller.close()


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccessAttributes:
    """No request has been made yet."""
    return AccessAttributes(tmp_path, monkeypatch)


def at_once(request: CreateStep, call: Call) -> StepCreated:
    return CREATED


def dies(request: CreateStep, call: Call) -> Deferred:
    call.channel.pipe.abort()
    return DEFERRED


def busy(request: CreateStep, call: Call) -> Rejection:
    return Rejection(code="ESLURM_NODES_BUSY")


def later(request: CreateStep, call: Call) -> Deferred:
    """Longer than goes unsaid."""
    import asyncio

    asyncio.get_running_loop().call_later(0.6, lambda: call.reply(CREATED))
    return DEFERRED


def never(request: CreateStep, call: Call) -> Deferred:
    return DEFERRED


def test_one_question_is_enough(asked: AccessAttributes) -> None:
    assert asked.create(at_once) == CREATED.step
    assert asked.requests == [CreateStep(job_id=7, spec=SPEC)]
    assert asked.errors.getvalue() == ""


def test_a_controller_that_dies_with_the_question_is_asked_again_and_told_so(asked: AccessAttributes) -> None:
    assert asked.create(dies, dies, at_once) == CREATED.step
    assert [request.again for request in asked.requests] == [False, True, True]
    assert {request.spec.io_key for request in asked.requests} == {"key"}


@pytest.mark.parametrize("immediate", [False, True])
def test_a_slow_answer_is_waited_for_without_a_message(asked: AccessAttributes, immediate: bool) -> None:
    assert asked.create(later, immediate=immediate) == CREATED.step
    assert asked.errors.getvalue() == ""


def test_a_step_that_need_not_wait_long_is_created_without_a_message(asked: AccessAttributes) -> None:
    assert asked.create(busy, at_once) == CREATED.step
    assert asked.requests == [CreateStep(job_id=7, spec=SPEC, wait=wait) for wait in (False, True)]
    assert asked.errors.getvalue() == ""


def test_a_step_that_waits_long_says_so(asked: AccessAttributes) -> None:
    assert asked.create(busy, later) == CREATED.step
    assert asked.errors.getvalue() == (
        "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
        "srun: Step created for job 7\n"
    )


def test_immediate_does_not_wait(asked: AccessAttributes) -> None:
    with pytest.raises(SpritzError, match="Unable to create step for job 7: Requested nodes are busy"):
        asked.create(busy, never, immediate=True)


def test_another_refusal_is_final(asked: AccessAttributes) -> None:
    with pytest.raises(SpritzError, match="Unable to create step for job 7: Requested operation is presently disabled"):
        asked.create(lambda request, call: Rejection(code="ESLURM_DISABLED"))
    assert len(asked.requests) == 1
