"""What values are read against, and the kinds of refusal: Slurm's parser's, Slurm's controller's, and ours.

Source: texts and exit codes as Slurm 22.05 has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import ESLURM, SpritzError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Fields = dict[str, object]

#: a wrong value ends the command with this status where Slurm's parser does
PARSE_STATUS = 255


class Source:
    """What values are read against: directory and variables, the time (epoch seconds; None: the machine's), and `say`
    for bare lines."""

    __slots__ = ("_now", "cwd", "environ", "say")

    def __init__(
        self,
        now: float | None = None,
        cwd: str = "/",
        environ: Mapping[str, str] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self._now = now
        self.cwd = cwd
        self.environ = environ or {}
        self.say = say

    @property
    def now(self) -> float:
        """What relative times count from."""
        if self._now is None:
            from spritz.runtime.clock import SystemClock

            self._now = SystemClock().now()
        return self._now


class Refusal(SpritzError):
    """What Slurm's controller would refuse: the command puts its own words before the message."""

    def __init__(self, code: str, hint: str = "") -> None:
        super().__init__(ESLURM[code][1], code=code, hint=hint)


def invalid(option: str, hint: str = "", details: tuple[str, ...] = ()) -> SpritzError:
    """`Invalid --time specification`."""
    return SpritzError(f"Invalid --{option} specification", exit_code=PARSE_STATUS, hint=hint, details=details)


def not_built(option: str, why: str) -> SpritzError:
    """A value that Slurm knows and we do not."""
    return SpritzError(f"option --{option} is not supported by Spritz: {why}", code="ESLURM_NOT_SUPPORTED")
