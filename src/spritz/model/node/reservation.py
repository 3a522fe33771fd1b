"""The reservation: nodes or cores kept for some users during a span of time, once or repeatedly.

Owns what a reservation is, when it is active, which users may use it, and which of two that overlap gives way. The core
decides which nodes it gets.

Source: scontrol(1) RESERVATIONS; https://slurm.schedmd.com/reservations.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.resources import GresAllocation, mask_of

if TYPE_CHECKING:
    from spritz.model.job.record import JobRequest

DAY = 86_400.0

#: Flag (as `scontrol show reservation` prints it) -> seconds until the next occurrence; WEEKDAY and WEEKEND skip days.
PERIODS = {"HOURLY": 3_600.0, "DAILY": DAY, "WEEKLY": 7 * DAY, "WEEKDAY": DAY, "WEEKEND": DAY}

#: In the order in which they are shown.
FLAGS = (
    "MAINT",
    "FLEX",
    "OVERLAP",
    "IGNORE_JOBS",
    "HOURLY",
    "DAILY",
    "WEEKDAY",
    "WEEKEND",
    "WEEKLY",
    "SPEC_NODES",
    "ALL_NODES",
    "ANY_NODES",
    "STATIC",
    "FIRST_CORES",
    "TIME_FLOAT",
    "REPLACE",
    "REPLACE_DOWN",
    "PART_NODES",
    "PURGE_COMP",
    "NO_HOLD_JOBS_AFTER_END",
    "MAGNETIC",
    "USER_DELETE",
    "FORCE_START",
)

#: Numbers of devices by name, and masks of them.
Devices = dict[str, int]


class Reservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reservation. Times in seconds since the epoch; those of a recurring one are of its present or next
    occurrence. `began`: that occurrence has begun.
    """

    name: str
    id: int
    start_at: float
    end_at: float
    #: a subset of FLAGS, in their order
    flags: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    #: (node, mask of CPUs) for a reservation of cores; else whole nodes are reserved
    cpus: tuple[tuple[str, str], ...] = ()
    #: (node, devices) for a reservation of GRES, which has cores of these nodes as well
    gres: tuple[tuple[str, tuple[GresAllocation, ...]], ...] = ()
    #: (name, count)
    licenses: tuple[tuple[str, int], ...] = ()
    core_count: int = 0
    cpu_count: int = 0
    #: names; `users_denied`: all users but these
    users: tuple[str, ...] = ()
    users_denied: bool = False
    accounts: tuple[str, ...] = ()
    accounts_denied: bool = False
    groups: tuple[str, ...] = ()
    gids: tuple[int, ...] = ()
    partition: str = ""
    features: str = ""
    comment: str = ""
    max_start_delay_seconds: int = 0
    #: PURGE_COMP: seconds without use after which the reservation ends
    purge_seconds: int = 0
    #: TIME_FLOAT: it always begins this many seconds from now
    float_seconds: float = 0.0
    #: offset of local time when the reservation was made, and (moment, offset from then on) of the changes known then:
    #: days are local
    utc_offset_seconds: int = 0
    utc_offset_changes: tuple[tuple[int, int], ...] = ()
    began: bool = False
    #: the last use, for PURGE_COMP
    used_at: float = 0.0

    @property
    def duration(self) -> float:
        """Length of the reservation in seconds."""
        return self.end_at - self.start_at

    @property
    def recurring(self) -> bool:
        """Whether the reservation recurs (DAILY, WEEKLY and similar flags)."""
        return any(flag in PERIODS for flag in self.flags)

    @property
    def maintenance(self) -> bool:
        """Whether the flag MAINT is set."""
        return "MAINT" in self.flags

    @property
    def flexible(self) -> bool:
        """FLEX: its jobs may run before and after it, and on nodes outside it."""
        return "FLEX" in self.flags

    @property
    def any_nodes(self) -> bool:
        """ANY_NODES: it has licenses, and its jobs run anywhere."""
        return "ANY_NODES" in self.flags

    @property
    def magnetic(self) -> bool:
        """MAGNETIC: jobs that may use it need not name it."""
        return "MAGNETIC" in self.flags

    @property
    def floating(self) -> bool:
        """Whether the flag TIME_FLOAT is set."""
        return "TIME_FLOAT" in self.flags

    def active(self, now: float) -> bool:
        """Whether `now` is within the reservation's times."""
        return not self.floating and self.start_at <= now < self.end_at

    def spans(self, count: int) -> list[tuple[float, float]]:
        """(start, end) of this occurrence and later ones, `count` at most."""
        spans = [(self.start_at, self.end_at)]
        while self.recurring and len(spans) < count:
            last_at, end_at = spans[-1]
            start_at = self.following(last_at)
            spans[-1] = last_at, min(end_at, start_at)  # a day of 23 hours ends what lasts for 24
            spans.append((start_at, start_at + self.duration))
        return spans

    def following(self, start_at: float) -> float:
        """Start of the occurrence after the one that began at `start_at`: at the same local time, except for HOURLY."""
        step = min(PERIODS[flag] for flag in self.flags if flag in PERIODS)
        if step < DAY:
            return start_at + step
        offset = self._utc_offset(start_at)
        local = start_at + offset + step
        for flag, wanted in (("WEEKDAY", range(5)), ("WEEKEND", range(5, 7))):
            if flag in self.flags and step == DAY:
                while int(local // DAY + 3) % 7 not in wanted:
                    local += DAY
        after = self._utc_offset(local - offset)
        # As mktime(3): a time that clocks leave out is that much later, of one that they show twice the first is meant.
        return local - (after if self._utc_offset(local - after) == after else offset)

    def _utc_offset(self, at: float) -> int:
        return next(
            (offset for begin, offset in reversed(self.utc_offset_changes) if begin <= at), self.utc_offset_seconds
        )

    def mask_on(self, node: str) -> int | None:
        """Mask of the CPUs that it reserves on the node; None: all of them. The node must be one of its own."""
        if not self.cpus:
            return None
        return next((int(mask, 16) for name, mask in self.cpus if name == node), 0)

    def devices_on(self, node: str) -> Devices:
        """Masks of the devices that it reserves on the node, by name."""
        masks: Devices = {}
        for name, gres in self.gres:
            for item in gres if name == node else ():
                masks[item.name] = masks.get(item.name, 0) | mask_of(item.indexes)
        return masks

    def admits(self, *, user: str, gids: tuple[int, ...], account: str) -> bool:
        """Whether this user, with these groups and this account, may use it."""
        if self.users and (user in self.users) is self.users_denied:
            return False
        if self.gids and not set(gids) & set(self.gids):
            return False
        return not self.accounts or (account in self.accounts) is not self.accounts_denied

    def lets_in(self, leaving_seconds: int) -> bool:
        """MaxStartDelay: whether jobs of others may run here that leave this soon once one of its own jobs needs their
        nodes (-1: they do not leave).
        """
        return 0 <= leaving_seconds <= self.max_start_delay_seconds > 0 and not self.maintenance

    def gives_way_to(self, other: Reservation | None) -> bool:
        """Where both have a node: whether jobs of `other` (None: of no reservation) run there as if this one did not
        exist.
        """
        if other is None:
            return False
        if other.name == self.name or other.maintenance:
            return True
        return "OVERLAP" in other.flags and not self.maintenance


def leaving_seconds(spec: JobRequest) -> int:
    """Seconds that a job takes to leave a reservation of others, with --signal=R:; -1 if it does not."""
    signal = spec.end_signal
    return signal.seconds if signal is not None and signal.reservation else -1
