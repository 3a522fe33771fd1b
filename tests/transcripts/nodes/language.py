"""Conversations of the controller's core with the machines of its nodes, over links that break.

The commands are those of `spritz_testing.transcript`, for the core, and these, for nodes. Orders are the real messages
(`NodeMessages`), nodes decide by `node.machine`; supervisors, spools and links are this module's.

    ended NODE STEP [exit=N]   the tasks of a step (`1.0.batch`: job, life, step) have ended there
    cut NODE [WHAT]            nothing crosses its link; WHAT `reports`: no report reaches the controller; `answers`: no
                               answer to a report reaches the node
    mend NODE                  a new connection: the node registers, and repeats what was not acknowledged
    delay NODE, arrive NODE    the next order for it stays with another node that cannot pass it on; it arrives now
    kill NODE                  its slurmd is killed and starts again; supervisors go on
    boot NODE                  its machine dies and boots
    controller                 slurmctld is killed and starts again, with the state and a higher term

What follows: `>` effects of the core; `n1:` what a node does; `n1 >` its report, with the events that it leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from spritz.controller.nodes.messages import NodeMessages
from spritz.core.effects import Effect
from spritz.core.machine import Machine as Core
from spritz.core.machine import Outcome
from spritz.model.cluster.settings import Caller
from spritz.model.ids import STEP_BATCH, step_name
from spritz.model.job.record import Job
from spritz.model.node_daemon.reports import JobGone, Registered, StepFinished, StepStarted, TaskEnd
from spritz.model.rejection import Rejection
from spritz.node import actions
from spritz.node.actions import StepKey
from spritz.node.machine import Machine
from spritz_testing.builders import ROOT, World
from spritz_testing.conversation import words_of
from spritz_testing.rendering import render_event, render_reply, render_struct
from spritz_testing.transcript import Transcript


class Site(World):
    """A world whose effects are kept for their delivery."""

    def __init__(self, **fields: Any) -> None:
        self.effects: list[Effect] = []
        super().__init__(**fields)
        self.effects.clear()

    def do(self, command: Struct, caller: Caller = ROOT) -> Outcome:
        outcome = super().do(command, caller)
        self.effects += outcome.effects
        return outcome


class Node:
    """A node's machine, and what outlives its slurmd: the spool, and the supervisors of steps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.machine = Machine(name)
        #: step -> its job, and its result once there is one
        self.spool: dict[StepKey, tuple[Job, StepFinished | None]] = {}
        #: reports that are not acknowledged, oldest first
        self.unacknowledged: list[Any] = []
        #: "up", "cut", "reports" or "answers"
        self.link = "up"
        #: the next order goes by way of another node; and what is with that one
        self.is_delayed = False
        self.late: list[Struct] = []
        self.boots = 1

    def start(self) -> list[actions.Action]:
        """slurmd begins: what the spool says."""
        self.machine, self.unacknowledged = Machine(self.name), []
        found: list[actions.Action] = []
        for key, (job, _result) in self.spool.items():
            self.machine.adopt(key, job)
        for key, (_job, result) in list(self.spool.items()):
            if result is not None:
                found += self.machine.noticed_end(key, result)
        return found


class NodeTranscript(Transcript):
    def __init__(self) -> None:
        super().__init__()
        self.term = 1
        self._begin(Site(nodes=2))

    def _begin(self, site: Site) -> None:
        self.world: Site = site
        self.nodes = {name: Node(name) for name in site.names}
        for node in self.nodes.values():
            self._register(node)
        site.effects.clear()
        blobs: Any = SimpleNamespace(get=_script)
        self.messages = NodeMessages(lambda: self.world.machine.state, blobs, lambda: self.term)

    def command(self, line: str) -> list[str]:
        (verb, *plain), named = words_of(line)
        own: dict[str, Callable[..., list[str]]] = {
            "ended": self._ended,
            "cut": self._cut,
            "mend": self._mend,
            "delay": self._delay,
            "arrive": self._arrive,
            "kill": self._kill,
            "boot": self._boot,
            "controller": self._controller,
        }
        lines = own[verb](*plain, **named) if verb in own else super().command(line)
        return lines + self._delivered()

    # Orders

    def _delivered(self) -> list[str]:
        """Send what the core wants sent, and what follows from that."""
        lines: list[str] = []
        while self.world.effects:
            effect = self.world.effects.pop(0)
            node = self.nodes[effect.node]
            message = _done(self.messages.message(effect))
            if message is None:
                continue
            if node.is_delayed:
                node.is_delayed = False
                node.late.append(message)
                lines.append(f"{node.name}: {type(message).__name__} is with another node")
            elif node.link == "cut":
                lines.append(f"{node.name}: not reached by {type(message).__name__}")
            else:
                lines += self._ordered(node, message)
        return lines

    def _ordered(self, node: Node, message: Any) -> list[str]:
        found = node.machine.handle(message, message.term)
        name = type(message).__name__
        if isinstance(found, Rejection):
            return [f"{node.name}: {name} is refused ({found.message or found.code})"]
        return self._acted(node, found) or [f"{node.name}: {name} changes nothing"]

    def _acted(self, node: Node, found: list[actions.Action]) -> list[str]:
        lines: list[str] = []
        for action in found:
            if isinstance(action, actions.StartSupervisor):
                key = action.key
                node.spool[key] = (action.message.job, None)
                lines.append(f"{node.name}: starts {_named(key)}")
                started = StepStarted(
                    node=node.name,
                    job_id=key.job_id,
                    restart_count=key.restart_count,
                    step_id=key.step_id,
                    started_at=self.world.now,
                )
                lines += self._report(node, started)
            elif isinstance(action, actions.EndStep):
                lines.append(f"{node.name}: ends {_named(action.key)}, SIGKILL after {action.kill_wait_seconds:g} s")
            elif isinstance(action, actions.SuspendStep):
                lines.append(f"{node.name}: {'continues' if action.resume else 'stops'} {_named(action.key)}")
            elif isinstance(action, actions.RemoveSpool):
                node.spool.pop(action.key, None)
                lines.append(f"{node.name}: forgets the result of {_named(action.key)}")
            elif isinstance(action, actions.Send):
                lines += self._report(node, action.report)
            else:
                lines.append(f"{node.name}: {render_struct(action)}")
        return lines

    # Reports

    def _report(self, node: Node, report: Any) -> list[str]:
        node.unacknowledged.append(report)
        return self._sent(node, report)

    def _sent(self, node: Node, report: Any) -> list[str]:
        said = f"{node.name} > {_said(report)}"
        if node.link in ("cut", "reports"):
            return [f"{said}: not heard"]
        outcome = self.world.do(report)
        lines = [said, *(f"  {render_event(event)}" for event in outcome.events)]
        if node.link == "answers":
            return [*lines, "  not acknowledged"]
        node.unacknowledged.remove(report)
        return lines + self._acted(node, node.machine.acknowledged(report))

    # What happens

    def _ended(self, name: str, step: str, exit: str = "0") -> list[str]:  # as `report finished` says it
        node, key = self.nodes[name], _key(step)
        job, _result = node.spool[key]
        result = StepFinished(
            node=name,
            job_id=key.job_id,
            restart_count=key.restart_count,
            step_id=key.step_id,
            ended_at=self.world.now,
            tasks=(TaskEnd(0, int(exit) << 8),),
        )
        node.spool[key] = (job, result)
        return self._acted(node, node.machine.noticed_end(key, result))

    def _cut(self, name: str, what: str = "cut") -> list[str]:
        self.nodes[name].link = what
        return []

    def _register(self, node: Node) -> Outcome:
        machine = node.machine
        return self.world.register(
            node.name,
            [(step.job_id, step.restart_count, step.step_id) for step in machine.running],
            jobs=machine.lives,
            runs=machine.runs,
            boot_id=f"b{node.boots}",
            spool_id=f"spool of {node.name}",
            last_job_id=machine.last_job_id,
        )

    def _mend(self, name: str) -> list[str]:
        node, machine = self.nodes[name], self.nodes[name].machine
        node.link = "up"
        outcome = self._register(node)
        self.world.effects[:] = outcome.effects  # with those that are derived again
        reply = outcome.reply
        assert isinstance(reply, Registered)
        machine.term = max(machine.term, self.term)
        lines = [f"{name} registers: {' '.join(sorted(map(_named, machine.running))) or 'nothing runs'}"]
        lines += [f"  {render_event(event)}" for event in outcome.events if type(event).__name__ != "NodeRegistered"]
        if reply.ended_jobs:
            lines.append(f"  {render_reply(reply)[0]}")
        # The reply first, then the effects, as they leave the controller; then what the node has to say.
        lines += self._acted(node, machine.end_jobs(reply.ended_jobs))
        lines += self._delivered()
        for report in list(node.unacknowledged):
            lines += self._sent(node, report)
        return lines

    def _delay(self, name: str) -> list[str]:
        self.nodes[name].is_delayed = True
        return []

    def _arrive(self, name: str) -> list[str]:
        node = self.nodes[name]
        late, node.late = node.late, []
        return [line for message in late for line in self._ordered(node, message)]

    def _kill(self, name: str) -> list[str]:
        node = self.nodes[name]
        node.link = "cut"
        return self._acted(node, node.start())

    def _boot(self, name: str) -> list[str]:
        node = self.nodes[name]
        node.link, node.boots = "cut", node.boots + 1
        found = node.start()
        for key, (job, result) in list(node.spool.items()):
            if result is None:
                died = node.machine.leftovers_gone(
                    key, self.world.now, began=True, tasks=(0,), error="the machine has booted", booted=True
                )
                (end,) = [one.report for one in died if isinstance(one, actions.Send)][:1]
                assert isinstance(end, StepFinished)
                node.spool[key] = (job, end)
                found += died
        return self._acted(node, found)

    def _controller(self) -> list[str]:
        self.world.machine = Core.from_image(self.world.machine.image())
        self.term += 1
        for node in self.nodes.values():
            node.link = "cut"
        return [f"term {self.term}"]


async def _script(key: str, **_options: object) -> bytes:
    return b"#!/bin/sh\n" if key else b""


def _done(work: Coroutine[Any, Any, Struct | None]) -> Struct | None:
    """The result of a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Struct | None = end.value
        return result
    raise AssertionError("it waits")


def _key(text: str) -> StepKey:
    job_id, life, step = text.split(".")
    return StepKey(int(job_id), int(life), STEP_BATCH if step == "batch" else int(step))


def _named(key: Any) -> str:
    return f"{key.job_id}.{key.restart_count}.{step_name(key.step_id)}"


def _said(report: Any) -> str:
    if isinstance(report, JobGone):
        return f"job {report.job_id}, life {report.restart_count}, is gone"
    if isinstance(report, StepStarted):
        return f"{_named(report)} runs"
    if isinstance(report, StepFinished):
        status = max((task.status for task in report.tasks), default=0)
        words = [f"{_named(report)} has ended", f"exit {status >> 8}" if not status & 127 else f"signal {status & 127}"]
        words += [report.error] if report.error else []
        words += ["nothing is left of the job"] if report.job_gone else []
        return ", ".join(words)
    return str(render_struct(report))
