"""What a simulated machine gives to every daemon: users, programs of the site, children, its log and its chance.

Names and arguments are those of the production code that they stand for (`seam`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from spritz.controller.forked import Forks
from spritz.runtime.directory import Person
from spritz.runtime.log import Logger, format_event
from spritz.runtime.privilege import UnknownUser, User
from spritz_testing.daemons.system import rates, threads

if TYPE_CHECKING:
    from spritz.runtime.programs import Failure, Runner
    from spritz_testing.daemons.system.world import Process, World

#: name -> uid, which is also the gid of a group of that name
USERS = {"root": 0, "slurm": 64030, "alice": 2001, "bob": 2002, "carol": 2003, "dave": 2004}
_NAMES = {uid: name for name, uid in USERS.items()}

#: Levels of the log that enter the story: up to Slurm's `info`.
LOG_LEVEL = 3


# Users


def lookup_user(text: str) -> User:
    name = _NAMES.get(int(text), text) if text.isdigit() else text
    if name not in USERS:
        raise UnknownUser(text)
    return User(name=name, uid=USERS[name], gid=USERS[name], home=f"/home/{name}", shell="/bin/sh")


class _Entry(NamedTuple):
    pw_name: str
    pw_uid: int
    pw_gid: int
    pw_dir: str
    pw_shell: str = "/bin/sh"


def getpwnam(name: str) -> _Entry:
    if name not in USERS:
        raise KeyError(name)
    return _Entry(name, USERS[name], USERS[name], f"/home/{name}")


def getpwuid(uid: int) -> _Entry:
    return getpwnam(_NAMES[uid])


class Passwd:
    """Stands for the module `pwd`."""

    getpwnam = staticmethod(getpwnam)
    getpwuid = staticmethod(getpwuid)


def person_of(uid: int) -> Person | None:
    name = _NAMES.get(uid)
    if name is None:
        return None
    return Person(uid=uid, gid=uid, user=name, group=name, groups=(uid,), group_names=(name,))


def user_name_of(uid: int) -> str | None:
    return _NAMES.get(uid)


def uid_of(name: str) -> int | None:
    return int(name) if name.isdigit() else USERS.get(name)


def group_name_of(gid: int) -> str | None:
    return _NAMES.get(gid)


def gid_of(name: str) -> int | None:
    return USERS.get(name)


# Chance, logs, clocks


class Randomness:
    """As `runtime.randomness.SystemRandomness`, from the seed."""

    __slots__ = ()

    def uniform(self, low: float, high: float) -> float:
        return threads.world().random("daemons").uniform(low, high)

    def token(self, size_bytes: int) -> bytes:
        return threads.world().random("daemons").randbytes(size_bytes)


class StoryLogger(Logger):
    """Writes a daemon's log into the story."""

    __slots__ = ("process",)

    def __init__(self, name: str, process: Process | None, fields: dict[str, Any] | None = None) -> None:
        super().__init__(name, fields)
        self.process = process

    def bind(self, **fields: Any) -> Logger:
        return StoryLogger(self.name, self.process, {**self._fields, **fields})

    def enabled(self, level: str) -> bool:
        return level in ("quiet", "fatal", "error", "info")

    def fatal(self, event: str, *, exception: BaseException | None = None, **fields: Any) -> None:
        self.write(1, event, fields, exception)

    def write(self, level: int, event: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
        if level > LOG_LEVEL:
            return
        world = threads.world()
        text = format_event(event, {**self._fields, **fields})
        if error is not None:
            text += f" | {error!r}"
        world.tell(f"{self.process or world.current} {text}")
        world.count(f"log {event}")
        if level <= 2:
            world.errors.append((world.now, self.process or world.current, event, error))


def get_logger(name: str) -> Logger:
    return StoryLogger(name, threads.world().current)


@contextlib.contextmanager
def watch_clock(on_set: Callable[[], None]) -> Iterator[None]:
    process = threads.world().running
    process.on_clock_set.append(on_set)
    try:
        yield
    finally:
        process.on_clock_set.remove(on_set)


class NoCollector:
    """As the module `gc`, which stays off: when objects end must not depend on how many there are."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class NoWatchdog:
    """As `runtime.watchdog.Watchdog`: no loop is stuck here, or the simulation does not come to its end."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> NoWatchdog:
        return self

    def __exit__(self, *_: object) -> None:
        pass


async def never(*_: object) -> None:
    await asyncio.get_running_loop().create_future()


class PidFile:
    """As `runtime.daemon.pidfile.PidFile`: at most one daemon of a kind runs on a simulated host anyway."""

    def release(self) -> None:
        pass


# Children and programs


class Child:
    """As `controller.forked.Child`. The work begins at the moment of the fork, whose state it must see, and runs to its
    end or to its gate; its result arrives later, or not at all: the child may be killed, or fail.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], bytes],
        done: Callable[[bytes | None], None],
        log: Logger,
        *,
        nice: int,
        seconds: float,
    ) -> None:
        world = threads.world()
        if world.running.forks is None:
            world.running.forks = Forks()
        forks: Forks = world.running.forks
        now = world.running.loop.time()
        forks.check(name, now)
        if world.faults("fork refused"):
            rates.note(world, f"{world.running} is refused a fork for {name}", rates.FORKS_MAX)
            raise forks.note_refusal(name, OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), now, log)
        forks.note_success()
        self._world = world
        self._process = world.running
        self._work = work
        self._done = done
        self._result: bytes | None = None
        self._over = False
        self._gate = threads.Event()
        self.pid = world.next_pid()
        world.count(f"child {name}")
        self._name = name
        #: what its work holds: the state of the moment
        self._inside = self._process.inside
        self._sequence = self._inside.context.writer.last_sequence if self._inside is not None else 0
        self._is_killed = world.faults("child killed")
        thread = threads.Thread(target=self._run, name=name)
        gates[thread] = self._gate
        thread.start_now()

    def _run(self) -> None:
        try:
            result: bytes | None = self._work()
        except Exception as error:
            self._world.tell(f"{self._process} a child failed: {error!r}")
            result = None
        self._result = None if self._is_killed else result
        self._world.after(_child_seconds(self._world), self._tell)

    def go(self) -> None:
        """The child may finish what it has prepared."""
        if self._inside is not None:
            self._inside.left(self._sequence, f"the {self._name}")
        self._gate.set()

    def kill(self) -> None:
        self._is_killed = True
        self._result = None
        self._world.soon(self._tell)

    def _tell(self) -> None:
        if not self._over:
            self._over = True
            self._process.loop.arrive(self._done, self._result)


#: Most seconds that a child's work takes, which depends on the run: a full pass over a long queue takes many, and what
#: it has planned is stale by then.
_CHILD_SECONDS_MAX = 0.5, 5.0, 30.0


def child_seconds_max(world: World) -> float:
    """Most seconds that the work of a child takes in this run."""
    return world.child_seconds_max or Random(f"{world.seed} children").choice(_CHILD_SECONDS_MAX)


def _child_seconds(world: World) -> float:
    return world.random("children").uniform(0.001, child_seconds_max(world))


#: where a child's thread waits
gates: dict[threads.Thread, threads.Event] = {}


def wait_for_go() -> bool:
    return gates[threads.current()].wait()


#: decides how a program of the site ends: (process, path, variables) -> seconds, failure
Programs = Callable[["Process", str, Mapping[str, str]], tuple[float, "Failure | None"]]


async def run_programs(
    patterns: Sequence[str],
    variables: Mapping[str, str],
    timeout_seconds: float,
    arguments: Sequence[str] = (),
    *,
    runner: Runner | None = None,
) -> Failure | None:
    from spritz.runtime.programs import Failure

    world = threads.world()
    process = world.running
    for path in patterns:
        world.on_program(process, path)
        seconds, failure = world.program(process, path, variables)
        if timeout_seconds and seconds > timeout_seconds:
            await asyncio.sleep(timeout_seconds)
            return Failure(f"{path}: not done in {timeout_seconds:g} seconds")
        await asyncio.sleep(seconds)
        if failure is not None:
            return failure
    return None
