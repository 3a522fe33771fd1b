"""The controller itself: whether it answers, and instructions to it."""

from __future__ import annotations

from msgspec import Struct


class Ping(Struct, frozen=True, kw_only=True):
    """Ask whether the controller answers. Reply: `Pong`."""


class Pong(Struct, frozen=True, kw_only=True):
    """Reply to Ping. `version` is Slurm's level, `software` ours; `pid` of the daemon."""

    host: str
    pid: int
    version: str
    software: str
    started_at: float
    now: float
    #: "primary" for the first SlurmctldHost, "backup" for the others; "slurmd", "slurmdbd"
    mode: str = "primary"
    #: whether it leads; else it stands by for `leader` (empty: no controller leads)
    leading: bool = True
    leader: str = ""
    #: the reason that keeps a standby controller from leading
    detail: str = ""


class Reconfigure(Struct, frozen=True, kw_only=True):
    """`scontrol reconfigure`: read the files again. Administrators only. Reply: `Done`; a broken file is a Failure with
    all errors and changes nothing.
    """


class Shutdown(Struct, frozen=True, kw_only=True):
    """`scontrol shutdown`: stop controller (and node daemons unless `controller_only`). Reply `Done` when it stops
    accepting; the connection closes when it has stopped."""

    controller_only: bool = False


class PingControllers(Struct, frozen=True, kw_only=True):
    """`scontrol ping` if a command does not reach all controllers: the leader asks. Reply: `ControllerPongs`."""


class ControllerPongs(Struct, frozen=True, kw_only=True):
    """One pong for each SlurmctldHost, in the order of slurm.conf; None for a host that does not answer.

    `reasons`: for each host why it does not answer, or ""; empty from an earlier release.
    """

    pongs: tuple[Pong | None, ...]
    reasons: tuple[str, ...] = ()


class TakeOver(Struct, frozen=True, kw_only=True):
    """`scontrol takeover`, to a standby controller: lead from now on. Root and SlurmUser. Reply: `Done`, immediately.

    With `index`, to the controller that leads: pass it on to that SlurmctldHost.
    """

    index: int = -1


class PauseScheduling(Struct, frozen=True, kw_only=True):
    """Start no job until the controller is restarted or `paused` is revoked (`spritz down` while jobs end).

    Administrators only. Not journaled. Reply: `Done`.
    """

    paused: bool = True


class SetDebugFlag(Struct, frozen=True, kw_only=True):
    """`scontrol setdebugflags +FLAG` or `-FLAG`, until the configuration is read again. Reply: `Done`."""

    flag: str
    on: bool


class SetDampening(Struct, frozen=True, kw_only=True):
    """`scontrol fsdampeningfactor N`, until the configuration is read again. Reply: `Done`."""

    factor: int


class SetPowerException(Struct, frozen=True, kw_only=True):
    """`scontrol update SuspendExcNodes=`, `SuspendExcParts=` or `SuspendExcStates=` (`key`). `sign`: + or - for more or
    fewer, else "". Until the configuration is read again. Reply: `Done`.
    """

    key: str
    sign: str
    text: str


class SetSchedulingLog(Struct, frozen=True, kw_only=True):
    """`scontrol schedloglevel LEVEL`: 1 or 0. Reply: `Done`."""

    level: int


class SetDebug(Struct, frozen=True, kw_only=True):
    """`scontrol setdebug LEVEL`: change the log level of the running controller. Reply: `Done`."""

    level: str
