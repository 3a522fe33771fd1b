"""The context in which option values are parsed, and errors: of Slurm's parser, of Slurm's controller, and our own.

Source: texts and exit codes of Slurm 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import ESLURM, SpritzError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Fields = dict[str, object]

#: Exit status for a bad value that Slurm's option parser refuses.
PARSE_STATUS = 255


class Source:
    """The context in which option values are parsed: working directory, environment and time (seconds since the epoch;
    None: the machine's clock). `say` prints a line without the program's name, `warn` a warning with it.
    """

    __slots__ = ("_now", "cwd", "environ", "say", "warn")

    def __init__(
        self,
        now: float | None = None,
        cwd: str = "/",
        environ: Mapping[str, str] | None = None,
        say: Callable[[str], None] = print,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._now = now
        self.cwd = cwd
        self.environ = environ or {}
        self.say = say
        self.warn = warn

    @property
    def now(self) -> float:
        """Seconds since the epoch from which relative times count."""
        if self._now is None:
            from spritz.runtime.clock import SystemClock

            self._now = SystemClock().now()
        return self._now


class Refusal(SpritzError):
    """An error that in Slurm the controller reports: the command puts its own words before the message."""

    def __init__(self, code: str, hint: str = "") -> None:
        super().__init__(ESLURM[code][1], code=code, hint=hint)


def invalid(option: str, hint: str = "", details: tuple[str, ...] = ()) -> SpritzError:
    """The error `Invalid --time specification`, with the status of Slurm's option parser."""
    return SpritzError(f"Invalid --{option} specification", exit_code=PARSE_STATUS, hint=hint, details=details)


def not_built(option: str, why: str) -> SpritzError:
    """The error for a value that Slurm supports and Spritz does not."""
    return SpritzError(f"option --{option} is not supported by Spritz: {why}", code="ESLURM_NOT_SUPPORTED")
