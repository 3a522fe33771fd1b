"""Answers that forked children compute for users.

Few children of a kind run at once, and a user has no more of them than remain free for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spritz.client.channel.admission import Pool, Rank
from spritz.controller.forked import Child
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from spritz.controller.forked import Work
    from spritz.model.cluster.settings import Caller
    from spritz.runtime.log import Logger

#: Children of one kind in progress at once; further callers must try again.
CHILDREN_MAX = 4

#: Seconds for one of them.
CHILD_SECONDS = 120.0


class Children:
    """Children of one kind. `what` names the requests that they answer, in the plural."""

    def __init__(self, name: str, what: str, log: Logger) -> None:
        self._name = name
        self._what = what
        self._log = log
        self._pool = Pool(CHILDREN_MAX, 0)

    def refusal(self, caller: Caller) -> Rejection | None:
        """Why the caller may have no further child now."""
        if self._pool.fits(caller.uid, Rank.TRUSTED if caller.admin else Rank.USER, 1):
            return None
        return Rejection(code="ESLURM_MAX_JOB_COUNT", hint=f"too many {self._what} at once; try again")

    def start(self, caller: Caller, work: Work, done: Callable[[bytes | None], None]) -> None:
        """Compute `work`; `refusal` has permitted it. `done` is called as `Child` does. Raises ForkRefused."""

        def ended(result: bytes | None) -> None:
            self._pool.take(caller.uid, -1)
            done(result)

        Child(self._name, work, ended, self._log, nice=0, seconds=CHILD_SECONDS)
        self._pool.take(caller.uid, 1)
