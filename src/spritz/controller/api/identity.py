"""Who asks: the kernel's word about a connection, turned into a `Caller`.

Owns authentication. A peer for whom the kernel does not vouch (another machine's, until signed tokens are built) is
nobody: it may ask whether the daemon is there, and nothing else. Users and groups are looked up here, and remembered
for a while, so that the core never has to.

Source: slurm.conf(5) SlurmUser, AuthType; getgrouplist(3).
"""

from __future__ import annotations

import grp
import os
import pwd
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.cluster import Caller
from spritz.model.errors import SpritzError
from spritz.runtime.privilege import UnknownUser, lookup_user

if TYPE_CHECKING:
    from spritz.client.handling import Call
    from spritz.runtime.clock import Clock

#: Seconds for which a user's entries are remembered: a directory service is not asked for each request.
REMEMBER_SECONDS = 300.0


class Person(Struct, frozen=True, kw_only=True, gc=False):
    """A user as the system's databases know them; `gid` is -1 for one whom they do not know."""

    uid: int
    gid: int
    user: str
    group: str
    groups: tuple[int, ...]
    group_names: tuple[str, ...]
    known: bool = True


class Identity:
    """Authenticates calls. `slurm_uid` is SlurmUser's number; that user, root and our own are administrators."""

    def __init__(self, slurm_uid: int, clock: Clock) -> None:
        self._admins = frozenset({0, slurm_uid, os.getuid()})
        self._clock = clock
        self._people: dict[int, tuple[float, Person]] = {}
        self._callers: dict[int, tuple[float, Caller]] = {}
        self._uids: dict[str, int] = {}

    def caller(self, call: Call) -> Caller:
        """Who asks. Raises SpritzError (SLURM_PROTOCOL_AUTHENTICATION_ERROR) if nobody vouches for the peer."""
        credentials = call.caller
        if credentials is None:
            raise SpritzError(
                "Protocol authentication error",
                code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
                hint="signed tokens between machines are not supported yet; use this on the controller's own machine",
            )
        return self.caller_of(credentials.uid, credentials.gid)

    def caller_of(self, uid: int, gid: int = -1) -> Caller:
        """The Caller of a user number that was vouched for; `gid` is for users whom no database knows."""
        now = self._clock.monotonic()
        known = self._callers.get(uid)
        if known is not None and known[0] > now:
            return known[1]
        person = self.person(uid, gid)
        caller = Caller(
            uid=uid,
            gid=person.gid,
            user=person.user,
            group=person.group,
            groups=person.groups,
            group_names=person.group_names,
            admin=uid in self._admins,
        )
        self._callers[uid] = now + REMEMBER_SECONDS, caller
        return caller

    def person(self, uid: int, gid: int = -1) -> Person:
        """The databases' entries of a user; one without an entry has the number for a name, and `gid`."""
        now = self._clock.monotonic()
        known = self._people.get(uid)
        if known is None or known[0] <= now:
            known = self._people[uid] = now + REMEMBER_SECONDS, look_up(uid, gid)
        return known[1]

    def uid_of(self, user: str) -> int:
        """Number of a user of slurm.conf, which has been checked to exist here; -1 if that has changed since."""
        known = self._uids.get(user)
        if known is None:
            try:
                known = lookup_user(user).uid
            except UnknownUser:
                return -1
            self._uids[user] = known
        return known

    def group_name(self, gid: int) -> str:
        """Name of a group; its number where it has none."""
        return _group_name(gid)

    def forget(self) -> None:
        """Look everybody up again: the administrator has reconfigured."""
        self._people.clear()
        self._callers.clear()
        self._uids.clear()


def look_up(uid: int, gid: int = -1) -> Person:
    """Ask the system about a user. Containers run as users without an entry: those have the group they came with."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        own = (gid,) if gid >= 0 else ()
        names = tuple(map(_group_name, own))
        return Person(uid=uid, gid=gid, user=str(uid), group="".join(names), groups=own, group_names=names, known=False)
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    names = tuple(map(_group_name, groups))
    return Person(
        uid=uid,
        gid=entry.pw_gid,
        user=entry.pw_name,
        group=_group_name(entry.pw_gid),
        groups=groups,
        group_names=names,
    )


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
