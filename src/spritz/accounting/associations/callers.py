"""Who asks slurmdbd, and what it may see and change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from spritz.accounting.associations.rights import read_rights
from spritz.accounting.associations.tables import TABLES
from spritz.accounting.engine import database_errors
from spritz.model.errors import SpritzError
from spritz.model.limits.records import User
from spritz.model.rejection import Rejection
from spritz.runtime.directory import user_name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sqlalchemy.engine import Engine

    from spritz.accounting.associations.rights import Rights
    from spritz.client.channel.handling import Call
    from spritz.runtime.clock import Clock
    from spritz.runtime.directory import Directory

#: Same as `tls.CONTROLLER`: a slurmdbd that serves one machine must not import TLS.
_CONTROLLER = "controller"


class Callers:
    """`read` runs work on a thread that reads the database. `private`: PrivateData."""

    def __init__(
        self,
        engine: Engine,
        directory: Directory,
        clock: Clock,
        read: Callable[..., Coroutine[Any, Any, Any]],
        slurm_uid: int,
        private: frozenset[str],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._read = read
        self._admins = frozenset({0, slurm_uid, os.geteuid()})
        self.directory = directory
        self.private = private
        #: MaxQueryTimeRange, seconds
        self.longest_window: int | None = None

    def uid(self, call: Call) -> int:
        """The caller. Raises SpritzError if the peer cannot be identified."""
        if call.caller is None:
            raise SpritzError(
                "Protocol authentication error",
                code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
                hint="signed tokens between machines are not supported yet; ask on slurmdbd's own machine",
            )
        return call.caller.uid

    async def user_name(self, call: Call) -> str:
        """The caller's login name, or its number if the system has no name. Raises SpritzError."""
        uid = self.uid(call)
        return await self.directory.answer(user_name_of, uid) or str(uid)

    def is_admin(self, call: Call) -> bool:
        """True for root, SlurmUser and the daemon's user, and for a controller on another machine: it has the cluster's
        key.
        """
        if call.caller is None and call.machine is not None:
            return call.machine.role == _CONTROLLER
        return self.uid(call) in self._admins

    def need_admin(self, call: Call) -> None:
        """Raises SpritzError (ESLURM_ACCESS_DENIED) unless the caller is an administrator."""
        if not self.is_admin(call):
            raise SpritzError(Rejection(code="ESLURM_ACCESS_DENIED").text, code="ESLURM_ACCESS_DENIED")

    async def restricted(self, call: Call, *words: str) -> Rights | None:
        """Rights of a caller that may see only its own records; None if it may see all.

        PrivateData restricts the records if it has any of `words`.
        """
        if self.is_admin(call) or self.private.isdisjoint(words):
            return None
        rights: Rights = await self._read(read_rights, self._engine, await self.user_name(call))
        return None if rights.operator else rights

    async def check_window(self, call: Call, starts_at: float | None, ends_at: float | None) -> None:
        """Raises SpritzError (ESLURM_DB_QUERY_TOO_WIDE) for a window longer than MaxQueryTimeRange, unless the caller
        is an operator.

        Source: slurmdbd.conf(5).
        """
        if self.longest_window is None or self.is_admin(call):
            return
        seconds = int(self._clock.now() if ends_at is None else ends_at) - int(starts_at or 0)
        if seconds > self.longest_window:
            rights: Rights = await self._read(read_rights, self._engine, await self.user_name(call))
            if not rights.operator:
                raise SpritzError(Rejection(code="ESLURM_DB_QUERY_TOO_WIDE").text, code="ESLURM_DB_QUERY_TOO_WIDE")

    async def has_level(self, call: Call, *levels: str) -> bool:
        """Whether the caller is an administrator, or has one of these AdminLevels."""
        if self.is_admin(call):
            return True
        name = await self.directory.answer(user_name_of, self.uid(call))
        return name is not None and await self._read(self._level, name) in levels

    def _level(self, name: str) -> str:
        users = TABLES[User]
        with database_errors(), self._engine.connect() as connection:
            return str(connection.execute(select(users.c.admin).where(users.c.name == name, ~users.c.deleted)).scalar())

    async def need(self, call: Call, *levels: str) -> None:
        """Raises SpritzError (ESLURM_ACCESS_DENIED) unless the caller has one of these AdminLevels."""
        if not await self.has_level(call, *levels):
            raise SpritzError(Rejection(code="ESLURM_ACCESS_DENIED").text, code="ESLURM_ACCESS_DENIED")
