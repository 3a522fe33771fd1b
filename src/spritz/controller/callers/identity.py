"""Authentication: turns the kernel's credentials of a connection into a `Caller`.

For a user on another machine the daemon there vouches (`client.relay.hub`), with a credential in place of the kernel's.
Any other peer may only ping. Users and groups are looked up before a handler runs (`identified`), so that neither the
handler nor the core waits for a directory service. Rules if it does not answer (`runtime.directory`):

- Known users are served as before.
- A query, and any request of an administrator, is served with the uid alone, without name and groups.
- Any other request fails, and so does one that needs further lookups (a job's owner, the groups of a partition).
- Node daemons need no lookup at all.

Source: slurm.conf(5) SlurmUser, AuthType; getgrouplist(3).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from spritz.client.channel.handling import DEFERRED, answer
from spritz.model.cluster.settings import Caller
from spritz.model.errors import SpritzError
from spritz.runtime.directory import (
    Directory,
    DirectoryUnavailable,
    Person,
    Question,
    gid_of,
    group_name_of,
    person_of,
    uid_of,
)

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.channel.handling import Call, Handler, Result
    from spritz.controller.callers.rate_limits import RateLimits
    from spritz.runtime.credentials import PeerCredentials
    from spritz.runtime.tasks import Supervisor

#: `lookups(request, caller)`: what a handler needs looked up in addition to its caller.
Lookups = Callable[[Any, Caller], Iterable[Question]]


class Identity:
    """Authenticates calls. `slurm_uid`: SlurmUser's number; that user, root and the daemon's own user are
    administrators.

    Its methods answer from memory. They raise DirectoryUnavailable for what was not looked up beforehand.
    """

    def __init__(self, slurm_uid: int, directory: Directory) -> None:
        self._admins = frozenset({0, slurm_uid, os.getuid()})
        self._callers: dict[int, tuple[Person, Caller]] = {}
        self.directory = directory

    @property
    def owners(self) -> frozenset[int]:
        """Users that may run the cluster's daemons: root, SlurmUser, the daemon's own user."""
        return self._admins

    def is_admin(self, call: Call) -> bool:
        """Whether the caller is root, SlurmUser or the daemon's own user. Raises SpritzError for an
        unidentified peer.
        """
        return _credentials(call).uid in self._admins

    def knows(self, call: Call) -> bool:
        """Whether `caller` can answer from memory. Raises SpritzError for an unidentified peer."""
        credentials = _credentials(call)
        person = self.directory.recall(person_of, credentials.uid)
        if person is None:
            return False
        alone = person.value is None and credentials.gid >= 0
        return not alone or self.directory.recall(group_name_of, credentials.gid) is not None

    def caller(self, call: Call) -> Caller:
        """The caller. Raises SpritzError (SLURM_PROTOCOL_AUTHENTICATION_ERROR) for an unidentified peer."""
        credentials = _credentials(call)
        return self.caller_of(credentials.uid, credentials.gid)

    def caller_of(self, uid: int, gid: int = -1) -> Caller:
        """The Caller for an authenticated uid; `gid` serves users without an entry, as in containers."""
        try:
            person = self.person(uid, gid)
        except DirectoryUnavailable:
            person = _stranger(uid, gid, "")
        known = self._callers.get(uid)
        if known is not None and known[0] is person:
            return known[1]
        caller = Caller(
            uid=uid,
            gid=person.gid,
            user=person.user,
            group=person.group,
            groups=person.groups,
            group_names=person.group_names,
            admin=uid in self._admins,
        )
        if person.known:
            self._callers[uid] = person, caller
        return caller

    def person(self, uid: int, gid: int = -1) -> Person:
        """A user's entry. Without an entry the name is the number, and the group is `gid`."""
        person = self.directory.get(person_of, uid)
        return _stranger(uid, gid, self.group_name(gid)) if person is None else person

    def uid_of(self, user: str) -> int | None:
        """The uid of a user given by name or number; None if there is none."""
        return self.directory.get(uid_of, user)

    def gid_of(self, group: str) -> int | None:
        """The gid of a group; None if there is none."""
        return self.directory.get(gid_of, group)

    def group_name(self, gid: int) -> str:
        """A group's name; its number if it has no name, or the lookup takes too long."""
        if gid < 0:
            return ""
        try:
            return self.directory.get(group_name_of, gid) or str(gid)
        except DirectoryUnavailable:
            return str(gid)


def identified(
    identity: Identity,
    tasks: Supervisor,
    handler: Handler,
    *,
    lookups: Lookups | None = None,
    query: bool = False,
    limits: RateLimits | None = None,
) -> Handler:
    """Wraps the handler: it runs once its caller and the results of `lookups` are known; at once if they already are.

    `limits` may delay or refuse a user's request. `query`: changes nothing, so it is answered even if the directory is
    not.
    """
    return _IdentifiedHandler(identity, tasks, handler, lookups, limits, query=query).run


class _IdentifiedHandler:
    __slots__ = ("_handler", "_identity", "_limits", "_lookups", "_query", "_tasks")

    def __init__(
        self,
        identity: Identity,
        tasks: Supervisor,
        handler: Handler,
        lookups: Lookups | None,
        limits: RateLimits | None,
        *,
        query: bool,
    ) -> None:
        self._identity = identity
        self._tasks = tasks
        self._handler = handler
        self._lookups = lookups
        self._limits = limits
        self._query = query

    def run(self, request: Struct, call: Call) -> Result:
        """The handler of every such request: first its rate limit, then its caller."""
        limits = self._limits
        if limits is None or limits.rule is None or self._identity.is_admin(call):
            return self._identify(request, call)
        loop = asyncio.get_running_loop()
        wait = limits.wait(_credentials(call).uid, loop.time())
        if wait is None:
            raise SpritzError(
                "Rate limit exceeded, please retry momentarily",
                code="SLURMCTLD_COMMUNICATIONS_BACKOFF",
                hint="SlurmctldParameters=rl_enable limits how many requests a user may make",
            )
        if not wait:
            return self._identify(request, call)
        call.counted = 0.0
        timer = loop.call_later(wait, answer, call, self._identify, request)
        call.on_abandon(timer.cancel)
        return DEFERRED

    def _identify(self, request: Struct, call: Call) -> Result:
        """Run the handler, at once (nearly always: the directory remembers users) or after the lookups."""
        if self._identity.knows(call) and not self._is_missing(request, call):
            return self._handler(request, call)
        call.counted = 0.0  # set by `answer` when its turn comes
        self._tasks.spawn_contained(self._later(request, call), name=f"identify.{call.kind}")
        return DEFERRED

    def _is_missing(self, request: Struct, call: Call) -> bool:
        """Whether a result of `lookups` is not in memory."""
        if self._lookups is None:
            return False
        return bool(self._identity.directory.missing(self._lookups(request, self._identity.caller(call))))

    async def _later(self, request: Struct, call: Call) -> None:
        try:
            await self._look_up(request, call)
        except SpritzError as error:
            call.fail(error)
            return
        await call.channel.turn()  # all that waited for the same answer would go on in one turn of the loop
        if not call.abandoned:
            answer(call, self._handler, request)

    async def _look_up(self, request: Struct, call: Call) -> None:
        identity, credentials = self._identity, _credentials(call)
        directory = identity.directory
        try:
            person = await directory.answer(person_of, credentials.uid)
            if person is None and credentials.gid >= 0:
                await directory.answer(group_name_of, credentials.gid)
        except DirectoryUnavailable:
            # The uid suffices for a query and for an administrator; a submission needs the user's name and groups.
            if not self._query and not identity.is_admin(call):
                raise
        if self._lookups is not None:
            await directory.ask(self._lookups(request, identity.caller(call)))


def _credentials(call: Call) -> PeerCredentials:
    if call.caller is None:
        raise SpritzError(
            "Protocol authentication error",
            code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
            hint="on other machines commands speak to slurmd or sackd there, which vouch for users (`spritz join`)",
        )
    return call.caller


def _stranger(uid: int, gid: int, group: str) -> Person:
    """A user without an entry, with the group from its credential."""
    groups = (gid,) if gid >= 0 else ()
    names = (group or str(gid),) if groups else ()
    return Person(uid=uid, gid=gid, user=str(uid), group="".join(names), groups=groups, group_names=names, known=False)
