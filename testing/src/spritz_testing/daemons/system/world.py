"""Virtual time, and what happens in it: hosts, processes, and the order of events, all drawn from one seed.

One event happens at a time. A process runs in turns of its loop (`loop`), and in threads that hand over a baton
(`threads`): only one of them runs at any moment, and each runs until it waits for something. So every interleaving is
one that real processes could have, it is chosen by the seed, and it comes again with the seed.

Time stands still while code runs; it passes between events only. Every event takes a little of it, so nothing can go
round for ever at one moment.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from spritz_testing.daemons.system.loop import ProcessKilled, VirtualLoop

__all__ = ["EPOCH", "Event", "Host", "Process", "ProcessKilled", "Stuck", "World"]

if TYPE_CHECKING:
    from pathlib import Path

    from spritz.runtime.programs import Failure
    from spritz_testing.daemons.database import Database
    from spritz_testing.daemons.system.disk import Disk
    from spritz_testing.daemons.system.network import Network
    from spritz_testing.daemons.system.threads import Waiter

#: When a simulation begins: 2027-01-15T08:45:00Z. An hour of accounting ends in the middle of even a short run.
EPOCH = 1_800_002_700.0

#: Seconds that a turn of a loop, a timer, or a thread that can go on, is late: at least, and at most so many more.
_LATE_LEAST, _LATE_MORE = 5e-6, 195e-6

#: Events of one simulated second above which something goes round without end.
EVENTS_A_SECOND_MAX = 2_000_000


class Stuck(Exception):
    """The simulation does not come to its end: a limit of events is reached."""


class Event:
    """Something that will happen; `cancel` prevents it."""

    __slots__ = ("at", "call", "world")

    def __init__(self, world: World, at: float, call: Callable[[], None]) -> None:
        self.world = world
        self.at = at
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        if self.call is not None:
            self.call = None
            self.world.note_cancelled()


class World:
    """Time and order. `root` is a directory for what the hosts keep on their disks."""

    def __init__(self, seed: int, root: Path) -> None:
        self.seed = seed
        self.root = root
        #: seconds since the epoch, as no clock of a host need show it
        self.now = EPOCH
        self.hosts: dict[str, Host] = {}
        #: the process whose code runs at this moment
        self.current: Process | None = None
        #: lines of the story: (time, text)
        self.story: list[tuple[float, str]] = []
        #: how often something happened, by name: kinds of faults and messages, for coverage
        self.counts: dict[str, int] = {}
        self._random = random.Random(seed)
        self._streams: dict[str, random.Random] = {}
        self.network: Network
        self._heap: list[tuple[float, float, int, Event]] = []
        self._numbers = 0
        self._cancelled = 0
        self._pids = 100
        self.events = 0
        #: errors that a process left to its loop or thread
        self.unhandled: list[tuple[Process, dict[str, Any]]] = []
        #: lines at level error or fatal: (time, process, event, exception)
        self.errors: list[tuple[float, Process | None, str, BaseException | None]] = []
        #: decides how a program of the site ends (`machine.run_programs`)
        self.program: Callable[[Process, str, Mapping[str, str]], tuple[float, Failure | None]] = lambda *_: (
            0.01,
            None,
        )
        #: hears which program a process starts
        self.on_program: Callable[[Process, str], None] = lambda process, path: None
        #: makes what runs the calls of `asyncio.to_thread` (`seam`)
        self.new_pool: Callable[[], Any] = lambda: None
        #: chance of each small fault that happens at a call (`faults`)
        self.chances: dict[str, float] = {}
        #: clients of steps by their address (`supervisors.StepClient`)
        self.step_clients: dict[str, Any] = {}
        #: what a look inside a daemon has found: (rule, seconds after the beginning, text)
        self.violations: list[tuple[str, float, str]] = []
        #: most seconds that the work of a child takes; 0.0: as the seed says
        self.child_seconds_max = 0.0
        #: what is counted in its present second (`rates`), and what was too often in one
        self.rates: dict[str, tuple[int, int]] = {}
        self.too_often: set[str] = set()
        #: of durable jobs: (uid, tag or name) by id; a job that is queued again has a new time of submission
        self.job_ids: dict[int, tuple[int, str]] = {}
        #: simulated sockets by descriptor (`local`)
        self.descriptors: dict[int, Any] = {}

    def random(self, name: str) -> random.Random:
        """The random numbers of one purpose: what is drawn for one does not shift those of another."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = random.Random(f"{self.seed} {name}")
        return stream

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append((self.now, text))

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def faults(self, kind: str) -> bool:
        """Whether a small fault of this kind happens at this call."""
        chance = self.chances.get(kind, 0.0)
        if chance and self.random(kind).random() < chance:
            self.count(f"fault {kind}")
            self.tell(f"fault: {kind}, {self.current}")
            return True
        return False

    # Events

    def at(self, when: float, call: Callable[[], None]) -> Event:
        """Let `call` happen at that time; among events of the same time in an order of the seed."""
        when = max(when, self.now)
        event = Event(self, when, call)
        self._numbers += 1
        heapq.heappush(self._heap, (when, self._random.random(), self._numbers, event))
        return event

    def after(self, seconds: float, call: Callable[[], None]) -> Event:
        return self.at(self.now + seconds, call)

    def soon(self, call: Callable[[], None]) -> Event:
        """Let `call` happen within fractions of a millisecond."""
        return self.late(self.now, call)

    def late(self, when: float, call: Callable[[], None]) -> Event:
        """Let `call` happen fractions of a millisecond after that time."""
        return self.at(max(when, self.now) + _LATE_LEAST + _LATE_MORE * self._random.random(), call)

    def note_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > 1_000 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[3].call is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def step(self) -> bool:
        """Let the next event happen. False if there is none."""
        while self._heap:
            event = heapq.heappop(self._heap)[3]
            call = event.call
            if call is None:
                self._cancelled -= 1
                continue
            event.call = None
            self.now = max(self.now, event.at)
            self.events += 1
            call()
            return True
        return False

    def run(self, seconds: float) -> None:
        """Let everything happen that happens in so many seconds. Raises Stuck."""
        end = self.now + seconds
        most = self.events + int(EVENTS_A_SECOND_MAX * max(1.0, seconds))
        while self._heap and self._heap[0][0] <= end and self.step():
            if self.events > most:
                raise Stuck(f"more than {most} events")
        self.now = max(self.now, end)

    def run_until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Let things happen until something holds, for so many seconds at most. Returns whether it holds.

        Raises Stuck.
        """
        end = self.now + seconds
        most = self.events + int(EVENTS_A_SECOND_MAX * max(1.0, seconds))
        while not holds():
            if not self._heap or self._heap[0][0] > end:
                self.now = max(self.now, end)
                return holds()
            if not self.step():
                return holds()
            if self.events > most:
                raise Stuck(f"more than {most} events")
        return True

    def tell_reader(self, fd: int) -> None:
        """A loop listens to this descriptor from now on: what has come already makes it readable."""
        found = self.descriptors.get(fd)
        if found is not None:
            found.look()

    # Hosts and processes

    def host(self, name: str, address: str) -> Host:
        """A new machine."""
        host = Host(self, name, address)
        self.hosts[name] = host
        return host

    def find_host(self, name: str) -> Host | None:
        """By name or address."""
        found = self.hosts.get(name)
        return found or next((host for host in self.hosts.values() if host.address == name), None)

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    @property
    def running(self) -> Process:
        """The process whose code runs. Raises AssertionError outside of any."""
        assert self.current is not None, "no simulated process runs"
        return self.current


class Host:
    """A machine: a clock, a disk (a directory), and processes. Its power can be cut."""

    def __init__(self, world: World, name: str, address: str) -> None:
        self.world = world
        self.name = name
        self.address = address
        #: seconds by which its clock is ahead
        self.clock_ahead = 0.0
        #: (virtual time from which on, seconds that it is ahead), in order
        self.clock_sets: list[tuple[float, float]] = [(world.now, 0.0)]
        self.booted_at = world.now
        self.boots = 1
        self.is_up = True
        self.processes: list[Process] = []
        self.directory = world.root / name
        self.directory.mkdir(parents=True, exist_ok=True)
        #: what of its files survives, if that is simulated
        self.disk: Disk | None = None
        #: of a controller that can stand by: the database that has its journal (`standby`)
        self.database: Database | None = None
        #: which of two releases of Spritz is installed (`releases`)
        self.has_next_release = False
        #: called when it is up again
        self.on_boot: list[Callable[[], None]] = []
        #: of a compute node: its disk, its steps (`nodes.NodeMachine`)
        self.machine: Any = None
        self.on_power_lost: list[Callable[[], None]] = []

    def wall(self) -> float:
        """What its clock shows, epoch seconds."""
        return self.world.now + self.clock_ahead

    def monotonic(self) -> float:
        """Seconds since it booted."""
        return self.world.now - self.booted_at + 1.0

    def set_clock(self, ahead: float) -> None:
        """An administrator, or NTP, sets the clock: it shows the time plus so many seconds from now on."""
        self.clock_ahead = ahead
        self.clock_sets.append((self.world.now, ahead))
        for process in self.processes:
            for told in list(process.on_clock_set):
                process.loop.call_soon(told)

    def lose_power(self) -> None:
        """All processes end at this instant; nothing is sent to anybody."""
        self.is_up = False
        for process in list(self.processes):
            process.end(silently=True)
        for told in list(self.on_power_lost):
            told()

    def boot(self) -> None:
        """The machine is up again, with an empty list of processes."""
        self.is_up = True
        self.boots += 1
        self.booted_at = self.world.now
        for booted in list(self.on_boot):
            booted()


class Process:
    """A daemon or a command. `main` runs as its first task; its end is the end of the process."""

    def __init__(self, host: Host, name: str, uid: int = 0) -> None:
        self.world = host.world
        self.host = host
        self.name = name
        self.uid = uid
        self.pid = host.world.next_pid()
        self.loop = VirtualLoop(self)  # type: ignore[abstract]  # what it lacks raises NotImplementedError
        self.is_alive = True
        parent = host.world.current
        #: the release of Spritz that it runs: a child has its parent's
        self.is_next_release: bool = (
            parent.is_next_release if parent is not None and parent.host is host else host.has_next_release
        )
        #: of a process of the other release: it has read what the next one wrote
        self.met_next_format = False
        #: stopped by SIGSTOP
        self.is_stopped = False
        #: of the last SIGCONT
        self.went_on_at = 0.0
        #: how often its main thread waits at this moment inside a turn of its loop, with other events going on
        self.blocked = 0
        self.result: Any = None
        self.error: BaseException | None = None
        #: called at its end, with whether the machine lost power
        self.on_end: list[Callable[[bool], None]] = []
        self.on_clock_set: list[Callable[[], None]] = []
        #: refused forks of this process (`forked.Forks`); None: it has forked nothing
        self.forks: Any = None
        #: of a controller: its parts (`checks_inside.Inside`)
        self.inside: Any = None
        #: what a stopped process will do when it goes on
        self.held: list[Callable[[], None]] = []
        #: waits of its threads, in their order: they end with it
        self.waiters: dict[Waiter, None] = {}
        host.processes.append(self)

    def __repr__(self) -> str:
        return f"{self.host.name}/{self.name}[{self.pid}]"

    def begin(self, main: Coroutine[Any, Any, Any]) -> None:
        """Run its main task."""
        task = self.loop.create_task(main, name="main")
        task.add_done_callback(self._main_ended)

    def _main_ended(self, task: Any) -> None:
        if not task.cancelled():
            self.error = task.exception()
            self.result = None if self.error is not None else task.result()
        self.end()

    def end(self, *, silently: bool = False) -> None:
        """It is gone, at this instant, wherever its code was: as by SIGKILL, or `silently` with its machine."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.host.processes.remove(self)
        self.loop.forget()
        for ended in list(self.on_end):
            ended(silently)
        for waiter in list(self.waiters):
            waiter.process_ended()

    def signal(self, number: int) -> None:
        """Send it a signal that it handles."""
        self.loop.signalled(number)

    def stop(self) -> None:
        """SIGSTOP."""
        self.is_stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        if self.is_stopped:
            self.is_stopped = False
            self.went_on_at = self.world.now
            held, self.held = self.held, []
            for call in held:
                self.world.soon(call)

    def when_running(self, call: Callable[[], None]) -> bool:
        """False, and `call` comes later, while it is stopped; nothing happens in a process that is gone."""
        if self.is_stopped and self.is_alive:
            self.held.append(call)
            return False
        return self.is_alive
