"""Lists reservations, and resolves the users and groups in requests for them.

Policy is the core's. Source: scontrol(1) create, update, show ReservationName.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.controller.api.private import usable
from spritz.controller.needs import Clocked, Identifying, Reading
from spritz.controller.writer.durable import Writing, durable
from spritz.core.rights import operates
from spritz.model.commands.reservation import CreateReservation, ReservationRequest, UpdateReservation
from spritz.model.queries.reservations import ListReservations, Reservations
from spritz.model.rejection import Rejection
from spritz.runtime.directory import gid_of, person_of, uid_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msgspec import Struct

    from spritz.client.channel.handling import Call
    from spritz.model.cluster.settings import Caller
    from spritz.runtime.directory import Question


#: fields of a request that name users
_USERS = ("users", "users_added", "users_removed")


class Asking(Clocked, Identifying, Reading, Writing, Protocol):
    """Reservations and who asks for or makes them."""


def _is_number(name: str) -> bool:
    """Whether a user or group is given by its number, of at most ten digits."""
    return name.isdecimal() and len(name) <= 10


class ReservationApi:
    """Answers CreateReservation and UpdateReservation with names resolved to uids and gids, and ListReservations."""

    def __init__(self, context: Asking) -> None:
        self._context = context

    def lookups(self, command: CreateReservation | UpdateReservation, caller: Caller) -> Iterator[Question]:
        """Users and groups named in an operator's request."""
        if not operates(self._context.machine.state, caller):
            return
        request = command.request
        for field in _USERS:
            for name in getattr(request, field) or ():
                yield (person_of, int(name)) if _is_number(name) else (uid_of, name)
        for name in request.groups or ():
            if not _is_number(name):
                yield gid_of, name

    def make(self, command: CreateReservation | UpdateReservation, call: Call) -> Struct | Deferred:
        """Resolve names, decide, answer once durable."""
        context = self._context
        caller = context.identity.caller(call)
        if not operates(context.machine.state, caller):
            return Rejection(code="ESLURM_USER_ID_MISSING")
        request = self._resolved(command.request)
        if isinstance(request, Rejection):
            return request
        context.writer.handle(replace(command, request=request), caller, call.reply)
        return DEFERRED

    def _resolved(self, request: ReservationRequest) -> ReservationRequest | Rejection:
        """Replaces user numbers by names and adds group numbers; unknown ones are refused."""
        fields: dict[str, object] = {}
        for field in _USERS:
            names = getattr(request, field)
            if not names:
                continue
            users = [self._user(name) for name in names]
            if None in users:
                return Rejection(code="ESLURM_USER_ID_MISSING", hint=f"there is no user {names[users.index(None)]}")
            fields[field] = tuple(users)
        if request.groups:
            gids = []
            for name in request.groups:
                gid = int(name) if _is_number(name) else self._context.identity.gid_of(name)
                if gid is None:
                    return Rejection(code="ESLURM_GROUP_ID_MISSING", hint=f"there is no group {name}")
                gids.append(gid)
            fields["gids"] = tuple(gids)
        return replace(request, **fields) if fields else request

    def _user(self, name: str) -> str | None:
        identity = self._context.identity
        if _is_number(name):
            person = identity.person(int(name))
            return person.user if person.known else None
        return name if identity.uid_of(name) is not None else None

    async def list_reservations(self, request: ListReservations, call: Call) -> Reservations:
        """All reservations in the order of their creation, or the existing ones of the given names."""
        context = self._context
        caller = context.identity.caller(call)
        known = context.machine.state.reservations
        reservations = [item for name, item in known.items() if not request.names or name in request.names]
        reservations = usable(context.machine.state, reservations, caller)
        now = context.clock.now()
        await durable(context, call)
        return Reservations(now=now, reservations=sorted(reservations, key=lambda item: item.id))
