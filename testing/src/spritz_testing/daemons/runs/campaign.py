"""Many runs: each in a forked child of a warm parent, some at a time, and the sums of what they saw.

A child has the production code imported already, so a run costs what it simulates. One that raises, dies or takes too
long is a violation like any other: the parent says so, since the child cannot.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import os
import selectors
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import TYPE_CHECKING

import msgspec.msgpack
from msgspec import Struct, field

from spritz_testing.daemons import faults
from spritz_testing.daemons.clients import inquiries, triggers
from spritz_testing.daemons.plan import Action, Plan, Scale
from spritz_testing.daemons.runs.run import Result, memory, run
from spritz_testing.daemons.workloads import after_hours, close_calls, habits, mishaps, workload

if TYPE_CHECKING:
    from typing import NoReturn

#: Seconds of CPU time of one run above which it is taken to be stuck; and so many times as much of the wall clock,
#: since a run that waits for ever takes none.
RUN_SECONDS_MAX = 120.0
_WALL_TIMES = 10

#: What adds actions to a plan.
DRAWERS: list[Callable[[Random, Scale], list[Action]]] = [
    workload.draw,
    habits.draw,
    after_hours.draw,
    inquiries.draw,
    triggers.draw,
    faults.draw,
    mishaps.draw,
    close_calls.draw,
]

#: asks a run that is stuck where it is, and the file with the answer
_TELL_SIGNAL = signal.SIGUSR1
_STACKS = ".stacks"

_TICKS = os.sysconf("SC_CLK_TCK")

Run = Callable[[Plan, Path], Result]

_DECODER = msgspec.msgpack.Decoder(Result)
_PIPE_BYTES = 1 << 20


def plan_of(seed: int, scale: Scale) -> Plan:
    """The plan of a seed: all that users and misfortune do, in the order of time."""
    actions: list[Action] = []
    for draw in DRAWERS:
        actions += draw(_random_of(draw, seed), scale)
    return Plan(seed=seed, scale=scale, actions=tuple(sorted(actions, key=lambda action: action.at)))


def _random_of(draw: Callable[[Random, Scale], list[Action]], seed: int) -> Random:
    """Random numbers of its own, by the last name of its module: in another package it draws what it drew before."""
    return Random(f"{seed} spritz_testing.daemons.{draw.__module__.rpartition('.')[2]}")


class Totals(Struct):
    """Sums over runs."""

    seeds: int = 0
    #: these and the runs that made the first failure smaller; 0: none did
    runs: int = 0
    virtual_seconds: float = 0.0
    cpu_seconds: float = 0.0
    events: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    #: runs that violated a rule, in the order in which they ended
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.virtual_seconds += result.virtual_seconds
        self.cpu_seconds += result.cpu_seconds
        self.events += result.events
        for name, count in result.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        if result.violations:
            self.failures.append(result)

    @property
    def faults(self) -> int:
        """How many were injected."""
        return sum(count for name, count in self.counts.items() if name.startswith("fault "))

    @property
    def ratio(self) -> float:
        """Virtual seconds in a second of CPU time."""
        return self.virtual_seconds / self.cpu_seconds if self.cpu_seconds else 0.0


def campaign(
    plans: Iterable[Plan],
    *,
    jobs: int = 0,
    stop_at_first: bool = False,
    seconds_max: float = 0.0,
    run_seconds_max: float = RUN_SECONDS_MAX,
    run: Run | None = None,
    told: Callable[[Totals], None] = lambda totals: None,
) -> Totals:
    """Carry out plans, `jobs` at a time (default: one for each CPU), and add them up.

    `seconds_max`: no further run begins after so many seconds of wall-clock time; 0: no limit. `told` hears of each
    run that has ended.
    """
    totals = Totals()
    for _, result in results(plans, jobs=jobs, seconds_max=seconds_max, run_seconds_max=run_seconds_max, run=run):
        totals.add(result)
        told(totals)
        if stop_at_first and totals.failures:
            break
    return totals


def results(
    plans: Iterable[Plan],
    *,
    jobs: int = 0,
    seconds_max: float = 0.0,
    run_seconds_max: float = RUN_SECONDS_MAX,
    run: Run | None = None,
) -> Iterator[tuple[Plan, Result]]:
    """Plans and their results, as the runs end. Closing the iterator kills those that have not ended."""
    count = jobs or len(os.sched_getaffinity(0))
    waiting = iter(plans)
    began = monotonic()
    children: dict[int, _Child] = {}
    numbers = itertools.count()
    with contextlib.ExitStack() as clean, selectors.DefaultSelector() as selector:
        directory = Path(tempfile.mkdtemp(prefix="spritz-sim-", dir=memory()))
        clean.callback(shutil.rmtree, directory, ignore_errors=True)
        clean.callback(lambda: [child.kill() for child in children.values()])
        while True:
            while len(children) < count and not (seconds_max and monotonic() - began > seconds_max):
                plan = next(waiting, None)
                if plan is None:
                    break
                child = _Child(plan, directory / str(next(numbers)), run or _run)
                children[child.descriptor] = child
                selector.register(child.descriptor, selectors.EVENT_READ)
            if not children:
                return
            for key, _ in selector.select(0.5):
                children[key.fd].read()
            for child in list(children.values()):
                child.is_stuck = not child.is_over and child.takes_too_long(run_seconds_max)
                if child.is_over or child.is_stuck:
                    selector.unregister(child.descriptor)
                    del children[child.descriptor]
                    yield child.plan, child.result(run_seconds_max)


def _run(plan: Plan, root: Path) -> Result:
    result = run(plan, root)
    result.story, result.history = [], []  # the parent wants neither
    if not result.violations:
        result.transcript = []
    return result


class _Child:
    """A run in a process of its own."""

    def __init__(self, plan: Plan, root: Path, run: Run) -> None:
        self.plan = plan
        self.root = root
        self.began = monotonic()
        self.is_over = False
        self.is_stuck = False
        self._received = bytearray()
        root.mkdir()
        self.descriptor, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.descriptor)
            _serve(plan, root, run, writing)
        os.close(writing)

    def read(self) -> None:
        data = os.read(self.descriptor, _PIPE_BYTES)
        self._received += data
        self.is_over = not data

    def kill(self) -> int:
        """End it, and return its wait status."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.descriptor)
        shutil.rmtree(self.root, ignore_errors=True)
        return status

    def takes_too_long(self, seconds: float) -> bool:
        """Whether it has used so many seconds of CPU time, or makes no progress."""
        wall_seconds = monotonic() - self.began
        if wall_seconds < seconds:
            return False
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS > seconds or wall_seconds > _WALL_TIMES * seconds

    def _where(self) -> str:
        """What all threads of a stuck run do."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, _TELL_SIGNAL)
            sleep(0.5)
            return (self.root / _STACKS).read_text()
        return ""

    def result(self, seconds: float) -> Result:
        """What it has sent, or why it sent nothing."""
        where = self._where() if self.is_stuck else ""
        status = self.kill()
        if not self.is_stuck:
            with contextlib.suppress(msgspec.DecodeError):
                return _DECODER.decode(bytes(self._received))
        text = f"no result after {seconds:g} s\n{where}" if self.is_stuck else f"its process ended with status {status}"
        rule = "5: a run comes to its end" if self.is_stuck else "the simulation does not fail"
        return failed(self.plan, rule, text, monotonic() - self.began)


def _serve(plan: Plan, root: Path, run: Run, writing: int) -> NoReturn:
    """In the child: run, send the result, and end with all threads of the simulation."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent kills it
        try:
            with open(root / _STACKS, "w") as stacks:
                faulthandler.register(_TELL_SIGNAL, file=stacks)
                result = run(plan, root)
                faulthandler.unregister(_TELL_SIGNAL)
        except BaseException:
            result = failed(plan, "the simulation does not fail", traceback.format_exc(), 0.0)
        with open(writing, "wb") as pipe:
            pipe.write(msgspec.msgpack.encode(result))
    finally:
        os._exit(0)


def failed(plan: Plan, rule: str, text: str, cpu_seconds: float) -> Result:
    """The result of a run that gave none."""
    return Result(
        seed=plan.seed,
        violations=[(rule, 0.0, text)],
        counts={},
        virtual_seconds=0.0,
        cpu_seconds=cpu_seconds,
        events=0,
        transcript=[f"! {rule}: {text}"],
    )
