"""Credentials of users sealed by the site's munged (AuthType=auth/munge), in place of the machine's key.

The daemon that vouches for a user has munged seal the credential. The controller's munged tells who sealed it: that
must be root, or a user that daemons run as. Everything else (cluster, host, times, nonce) is checked as usual.

Source: slurm.conf(5) AuthType, AuthInfo (socket).
"""

from __future__ import annotations

from collections.abc import Collection

from spritz.runtime.munge import PREFIX, Munge
from spritz.runtime.worker import Worker
from spritz.wire.credential import BYTES_MAX, BadCredential

#: Seconds for munged to answer.
_SECONDS = 5.0


class Munged:
    """Seals and unseals, in a thread. Raises MungeError without libmunge."""

    def __init__(self, info: str = "", makers: Collection[int] = (0,)) -> None:
        options = dict(word.strip().partition("=")[::2] for word in info.split(","))
        self._munge = Munge(options.get("socket", ""))
        self._makers = frozenset(makers)
        self._worker = Worker("munge", threads=2)

    async def seal(self, content: bytes) -> bytes:
        """A munge credential with this content. Raises SpritzError."""
        return await self._worker.run(self._munge.encode, content, seconds=_SECONDS)

    async def unseal(self, credential: bytes) -> bytes:
        """The content of the credential. Raises SpritzError: forged, expired, replayed, or not made by a daemon."""
        if not credential.startswith(PREFIX):
            raise BadCredential("downgraded", "it is not of munge, as AuthType=auth/munge has it")
        if len(credential) > BYTES_MAX or b"\0" in credential:
            raise BadCredential("malformed", "it is no credential of munge")
        content, maker = await self._worker.run(self._munge.decode, credential, seconds=_SECONDS)
        if maker not in self._makers:
            raise BadCredential("forged", f"user {maker} has made it, and only daemons may")
        return content


def munged_of(kind: str, info: str, makers: Collection[int] = (0,)) -> Munged | None:
    """The seal for AuthType=auth/munge; None for any other AuthType. Raises MungeError."""
    return Munged(info, makers) if kind.lower() in ("auth/munge", "munge") else None
