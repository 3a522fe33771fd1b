"""A request that is not allowed, as a value: part of normal flow, returned by `core.decide`."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.errors import ESLURM


class Rejection(Struct, frozen=True, kw_only=True, gc=False):
    """The request is not allowed. `code`: an `ESLURM` key; `message` replaces Slurm's text if it can say more; `hint`:
    what would help.
    """

    code: str
    message: str = ""
    hint: str = ""
    #: lines that Slurm prints as errors of their own before the failure itself
    details: tuple[str, ...] = ()
    #: how many of `details`, from the first, are messages of the site's plugins to the user
    told: int = 0

    @property
    def text(self) -> str:
        """One line for people: the given message or Slurm's."""
        return self.message or ESLURM.get(self.code, (0, self.code))[1]

    @property
    def number(self) -> int:
        """Slurm's error number, or 1 for codes that Slurm does not have."""
        return ESLURM.get(self.code, (1, ""))[0]
