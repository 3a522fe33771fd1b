"""The requests of auth/jwt: `UseToken` and `MakeToken`.

A connection that has shown a token belongs to the token's user (`Channel.assume`), whatever the kernel says. So a
gateway such as slurmrestd needs no rights of its own, and can act only for users that gave it a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.client.trust.tokens import BadToken, refused
from spritz.model.errors import SpritzError
from spritz.model.tokens import MakeToken, Token, TokenTaken, UseToken
from spritz.runtime.credentials import PeerCredentials
from spritz.runtime.directory import person_of, uid_of, user_name_of

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.channel.handling import Call, Handler
    from spritz.client.trust.tokens import TokenKeys
    from spritz.runtime.clock import Clock
    from spritz.runtime.directory import Directory


class TokenRequests:
    """Answers UseToken and MakeToken. `keys` None: the daemon is not configured for tokens."""

    def __init__(self, keys: TokenKeys | None, directory: Directory, clock: Clock, slurm_uid: int) -> None:
        self._keys = keys
        self._directory = directory
        self._clock = clock
        self._masters = frozenset({0, slurm_uid})

    def handlers(self) -> dict[type[Struct], Handler]:
        return {UseToken: self.use, MakeToken: self.make}

    async def use(self, request: UseToken, call: Call) -> TokenTaken:
        """Make the connection the user's. Raises BadToken; the connection then has no user."""
        channel = call.channel
        channel.disown()
        if self._keys is None:
            raise BadToken("auth/jwt is not among AuthAltTypes")
        now = self._clock.now()
        user, expires = self._keys.verify(request.token, now)
        uid = await self._directory.answer(uid_of, user)
        if uid is None:
            raise BadToken()
        for_another = bool(request.user) and request.user != user
        if for_another:
            if uid not in self._masters:
                raise BadToken("the token is another user's")
            user = request.user
            uid = await self._directory.answer(uid_of, user)
            if uid is None:
                raise BadToken()
        person = await self._directory.answer(person_of, uid)
        if person is None:
            raise BadToken()
        kernel = channel.pipe.credentials
        pid = 0 if kernel is None else kernel.pid
        who = PeerCredentials(pid=pid, uid=uid, gid=person.gid, via="jwt", by_master=for_another)
        channel.assume(who, expires - now)
        return TokenTaken(user=user, uid=uid, expires_at=expires)

    async def make(self, request: MakeToken, call: Call) -> Token:
        """A token for the caller, or for any user if SlurmUser or root asks."""
        caller = call.caller
        if caller is None:
            raise BadToken()
        if self._keys is None:
            raise SpritzError(
                "Protocol authentication error",
                code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
                hint="AuthAltTypes=auth/jwt and AuthAltParameters=jwt_key=FILE in slurm.conf allow tokens",
            )
        user = await self._directory.answer(user_name_of, caller.uid) or ""
        master = caller.uid in self._masters
        if request.user and request.user != user:
            uid = await self._directory.answer(uid_of, request.user)
            if not master or uid is None:
                raise refused("ESLURM_USER_ID_MISSING" if master else "ESLURM_ACCESS_DENIED")
            user = request.user
        if not user:
            raise refused("ESLURM_USER_ID_MISSING")
        if caller.via == "jwt" and not master:
            raise refused("ESLURM_ACCESS_DENIED", "a token is not good for another token: it would never end")
        return Token(token=self._keys.make(user, request.lifespan_seconds, self._clock.now(), master=master))
