"""sattach: attach another client to a step, and print the step's layout.

Source: sattach(1); texts of Slurm 22.05.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from spritz.cli.jobs.launch.controller import Controller
from spritz.cli.jobs.launch.interrupts import Interrupts
from spritz.cli.jobs.launch.listener import Listener
from spritz.cli.jobs.launch.run import StepRun
from spritz.cli.jobs.launch.settings import Settings
from spritz.cli.jobs.launch.streams.terminal import Terminal
from spritz.client.command.sync import connect_controller
from spritz.client.errors import RemoteError
from spritz.model.commands.step import AttachStep, StepCreated
from spritz.model.errors import SpritzError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.steps import ListSteps, Steps
from spritz.notation import hostlist
from spritz.stepd import protocol
from spritz.stepd.reactor import Reactor

if TYPE_CHECKING:
    from spritz.cli.call.context import Context
    from spritz.cli.jobs.submit.values import Values
    from spritz.model.job.step import Step


def show_layout(job_id: int, step_id: int, context: Context) -> int:
    """--layout: print the step's nodes and the tasks on each. Always 0; raises SpritzError."""
    target = JobTarget(job_id, step_id=step_id)
    with connect_controller() as controller:
        try:
            answer = controller.call(ListSteps(filter=JobFilter(targets=(target,))), Steps)
        except RemoteError as error:
            raise _not_found(error) from error
    steps = [view.step for view in answer.steps if view.step.step_id == step_id]
    if not steps:
        raise SpritzError("Could not get job step info: Invalid job id specified", code="ESLURM_INVALID_JOB_ID")
    step = steps[0]
    names = hostlist.compress(step.node_names)
    context.out(f"Job step layout:\n\t{step.tasks} tasks, {len(step.nodes)} nodes ({names})\n\n")
    for index, node in enumerate(step.nodes):
        tasks = " ".join(map(str, node.task_ids))
        context.out(f"\tNode {index} ({node.allocation.node}), {len(node.task_ids)} task(s): {tasks} \n")
    return 0


def attach(job_id: int, step_id: int, options: Values, filters: dict[str, int | None], context: Context) -> int:
    """Pass input and output until the step ends, or Ctrl-C; return the worst status of its tasks.

    Raises SpritzError.
    """
    reactor = Reactor()
    controller = Controller(reactor)
    listener = Listener()
    ask = AttachStep(job_id=job_id, step_id=step_id, io_address=listener.address, io_key=listener.key)
    try:
        created = controller.call(ask, StepCreated)
    except RemoteError as error:
        raise _not_found(error) from error
    controller.close()
    settings = Settings(options, {}, context.environ)
    step = created.step
    run = StepRun(
        reactor,
        listener,
        step,
        settings,
        context,
        end_step=lambda number: None,
        alive=lambda: None,
        others=created.others,
    )
    run.expect_only((step, *created.others))
    run.filters = (filters["output-filter"], filters["error-filter"])
    for _part in (step, *created.others):
        run.use_output(1, 2, labelled=settings.label)
    if options.get("pty") is not None:
        return _with_terminal(run, reactor, step, context)
    run.use_input(0, filters["input-filter"])
    Interrupts(reactor, lambda number: _detach(run, number))
    return run.run()


def _with_terminal(run: StepRun, reactor: Reactor, step: Step, context: Context) -> int:
    if not step.spec.pty:
        raise SpritzError("the step has no terminal: srun was not given --pty")
    try:
        terminal = Terminal(0)
    except OSError as error:
        raise SpritzError(f"ioctl(TIOCGWINSZ): {error.strerror}") from error
    run.use_input(0, 0)
    Interrupts(reactor, lambda number: _detach(run, number))
    terminal.make_raw()
    try:
        run.on_over = terminal.restore
        return run.run()
    finally:
        terminal.restore()


def _detach(run: StepRun, number: int) -> None:
    """Leave the step, which continues."""
    if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        for link in run.links:
            link.send(protocol.frame(protocol.DETACH))
        run.leave(128 + number)


def _not_found(error: RemoteError) -> SpritzError:
    return SpritzError(f"Could not get job step info: {error.message}", code=error.code, hint=error.hint)
