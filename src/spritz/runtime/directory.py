"""Users and groups of the system, looked up off the loop: an unreachable LDAP server must not block a daemon.

The C library's calls (getpwuid(3), getgrouplist(3), getgrgid(3)) query the sources in nsswitch.conf(5), and may block
for minutes. `Directory` makes them in threads, once per key for all requests that wait for it, and caches the answers:

- an answer is fresh for `FRESH_SECONDS`; after that it is still used while it is looked up again;
- the absence of a user or group is cached for `ABSENT_SECONDS`, and not used after that;
- requests wait until `DEADLINE_SECONDS` after the start of a lookup; then they get an old answer if there is one, or
  `DirectoryUnavailable`. While the lookup hangs, later requests for the same key do not wait again.

A directory service that fails at once looks like one that does not know the user: the C library reports both alike
through Python. nscd or sssd cache users through such an outage.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct

from spritz.model.errors import SpritzError
from spritz.runtime.privilege import UnknownUser, lookup_user
from spritz.runtime.worker import Worker, WorkerBusy

if TYPE_CHECKING:
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger

K = TypeVar("K")
T = TypeVar("T")

#: Seconds for which an answer is used without another lookup.
FRESH_SECONDS = 300.0

#: Seconds for which the absence of a user or group is cached.
ABSENT_SECONDS = 10.0

#: Seconds after which requests stop waiting for a lookup: less than the 10 s (MessageTimeout) that commands wait for
#: their answers.
DEADLINE_SECONDS = 5.0

#: Seconds between log lines about requests without an answer.
LOG_SECONDS = 60.0

#: Lookups queued for a thread; more are refused.
_WAITING_MAX = 1_000

#: Two, so that a hanging lookup does not block users of another source (files, another domain).
_THREADS = 2


class DirectoryUnavailable(SpritzError):
    """The system's databases did not answer in time."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the directory of users and groups did not answer for {what}",
            code="ESLURM_INTERNAL",
            hint="try again later; `getent passwd` and `getent group` on the daemon's machine show whether it answers",
        )


class Person(Struct, frozen=True, kw_only=True, gc=False):
    """A user in the system's databases, with all its groups; `known` is False without an entry."""

    uid: int
    gid: int
    user: str
    group: str
    groups: tuple[int, ...]
    group_names: tuple[str, ...]
    known: bool = True


# Lookup functions. Each blocks, and returns None for a user or group that does not exist.


def person_of(uid: int) -> Person | None:
    """A user in the system's databases, with all its groups."""
    try:
        entry = pwd.getpwuid(uid)
    except (KeyError, OverflowError):
        return None
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Person(
        uid=uid,
        gid=entry.pw_gid,
        user=entry.pw_name,
        group=group_name_of(entry.pw_gid) or str(entry.pw_gid),
        groups=groups,
        group_names=tuple(group_name_of(gid) or str(gid) for gid in groups),
    )


def user_name_of(uid: int) -> str | None:
    """The name of a user number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None


def uid_of(name: str) -> int | None:
    """The number of a user given by name or number."""
    try:
        return lookup_user(name).uid
    except (UnknownUser, ValueError):  # such as a NUL, or digits of another script
        return None


def group_name_of(gid: int) -> str | None:
    """The name of a group number."""
    try:
        return grp.getgrgid(gid).gr_name
    except (KeyError, OverflowError):
        return None


def gid_of(name: str) -> int | None:
    """The number of a group name."""
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        return None


#: one of the functions above, and its argument
Question = tuple[Callable[[Any], object], Any]


class Answer:
    """The result, None if not found; needs no new lookup until `fresh_until` (monotonic seconds)."""

    __slots__ = ("expired", "fresh_until", "value")

    def __init__(self, value: object, fresh_until: float) -> None:
        self.value = value
        self.fresh_until = fresh_until
        #: An administrator requested new answers: this one is used only if none comes in time.
        self.expired = False


class Directory:
    """Lookups for one daemon. Used on its loop's thread.

    A request first awaits `ask(questions)`, then reads the answers with `get`; `missing` says whether it must wait.
    """

    def __init__(self, clock: Clock, log: Logger) -> None:
        self.deadline_seconds = DEADLINE_SECONDS
        self._clock = clock
        self._log = log
        self._logged_at = float("-inf")
        self._worker = Worker("directory", threads=_THREADS, waiting_max=_WAITING_MAX)
        self._answers: dict[Question, Answer] = {}
        #: lookups in progress, and their start (monotonic seconds)
        self._flights: dict[Question, tuple[asyncio.Future[object], float]] = {}
        #: requests without an answer in time
        self.unanswered = 0

    def get(self, look_up: Callable[[K], T | None], key: K) -> T | None:
        """The cached answer; None: there is no such user or group.

        Raises DirectoryUnavailable if there is no answer, and starts a lookup.
        """
        question = (look_up, key)
        answer = self._answers.get(question)
        if answer is None:
            self._start(question)
            raise DirectoryUnavailable(_words(question))
        return cast("T | None", answer.value)

    def recall(self, look_up: Callable[[Any], object], key: Any) -> Answer | None:
        """The answer, if it need not be awaited. An old answer is refreshed in the background."""
        question = (look_up, key)
        answer = self._answers.get(question)
        if answer is None or self._clock.monotonic() < answer.fresh_until:
            return answer
        if answer.value is None or answer.expired:
            return None
        self._start(question)
        return answer

    def missing(self, questions: Iterable[Question]) -> list[Question]:
        """Questions whose answers must be awaited."""
        return [question for question in questions if self.recall(*question) is None]

    async def ask(self, questions: Iterable[Question]) -> None:
        """Get an answer to each question. Raises DirectoryUnavailable for the first without an answer in time."""
        missing = self.missing(questions)
        flights = [flight for question in missing if (flight := self._start(question)) is not None]
        if flights:
            until = max(begun for _, begun in flights) + self.deadline_seconds
            await asyncio.wait([flight for flight, _ in flights], timeout=max(0.0, until - self._clock.monotonic()))
        for question in missing:
            answer = self._answers.get(question)
            if answer is not None and (answer.value is not None or self._clock.monotonic() < answer.fresh_until):
                answer.expired = False
            else:
                self._note_silence(question)
                raise DirectoryUnavailable(_words(question))

    async def answer(self, look_up: Callable[[K], T | None], key: K) -> T | None:
        """`ask` and `get` for one question."""
        await self.ask([(look_up, key)])
        return self.get(look_up, key)

    def expire(self) -> None:
        """Look everything up again before its next use: an administrator says that users or groups have changed."""
        for answer in self._answers.values():
            answer.fresh_until, answer.expired = float("-inf"), True

    def close(self) -> None:
        """End the threads that do not hang."""
        self._worker.close()

    def _note_silence(self, question: Question) -> None:
        """Count it, and log once a minute."""
        self.unanswered += 1
        now = self._clock.monotonic()
        if now >= self._logged_at + LOG_SECONDS:
            self._logged_at = now
            self._log.error("directory.silent", asked=_words(question), unanswered_requests=self.unanswered)

    def _start(self, question: Question) -> tuple[asyncio.Future[object], float] | None:
        """The lookup in progress, started if necessary; None if the queue is full."""
        if question not in self._flights:
            look_up, key = question
            try:
                flight = self._worker.submit(look_up, key)
            except WorkerBusy:
                return None
            self._flights[question] = flight, self._clock.monotonic()
            flight.add_done_callback(lambda done: self._landed(question, done))
        return self._flights[question]

    def _landed(self, question: Question, flight: asyncio.Future[object]) -> None:
        del self._flights[question]
        if flight.cancelled() or flight.exception() is not None:
            return  # an OSError of getgrouplist(3) counts as no answer
        value = flight.result()
        seconds = FRESH_SECONDS if value is not None else ABSENT_SECONDS
        self._answers[question] = Answer(value, self._clock.monotonic() + seconds)


def _words(question: Question) -> str:
    look_up, key = question
    kind = "group" if look_up in (gid_of, group_name_of) else "user"
    return f"{kind} {key}"
