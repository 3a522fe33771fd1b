"""An association and a QOS with their texts parsed, as `limits.rules` needs them.

Source: sacctmgr(1) SPECIFICATIONS FOR ASSOCIATIONS, QOS.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.limits.records import Association, Qos
from spritz.notation.tres import parse

Tres = tuple[tuple[str, int], ...]


class QosBounds(Struct, frozen=True, kw_only=True):
    """A QOS with its texts parsed."""

    name: str
    record: Qos
    flags: frozenset[str]
    grp: Tres
    per_job: Tres
    per_node: Tres
    per_user: Tres
    per_account: Tres
    least: Tres
    #: in minutes: used by all jobs, committed by running jobs, used by one job, committed per user and per account
    grp_mins: Tres
    grp_run_mins: Tres
    mins_per_job: Tres
    run_mins_per_user: Tres
    run_mins_per_account: Tres


class AssocBounds(Struct, frozen=True, kw_only=True):
    """An association with its texts parsed. Its Max* bounds and QOS include those that it inherits."""

    record: Association
    grp: Tres
    per_job: Tres
    per_node: Tres
    max_jobs: int | None
    max_submit: int | None
    max_wall: int | None
    qos: frozenset[str]
    default_qos: str
    priority: int
    #: in minutes: used by all jobs, committed by running jobs, used by one job
    grp_mins: Tres
    grp_run_mins: Tres
    mins_per_job: Tres
    min_prio_threshold: int | None
    max_accrue: int | None


def assoc_bounds(record: Association, above: AssocBounds | None) -> AssocBounds:
    """The bounds of an association below another (None: root)."""
    return AssocBounds(
        record=record,
        grp=parse(record.grp_tres),
        per_job=_merged(parse(record.max_tres), above.per_job if above else ()),
        per_node=_merged(parse(record.max_tres_per_node), above.per_node if above else ()),
        max_jobs=_first(record.max_jobs, above.max_jobs if above else None),
        max_submit=_first(record.max_submit, above.max_submit if above else None),
        max_wall=_first(record.max_wall, above.max_wall if above else None),
        qos=names_of(record.qos) if record.qos is not None else above.qos if above else frozenset(),
        default_qos=record.default_qos or (above.default_qos if above else ""),
        priority=_first(record.priority, above.priority if above else None) or 0,
        grp_mins=parse(record.grp_tres_mins),
        grp_run_mins=parse(record.grp_tres_run_mins),
        mins_per_job=_merged(parse(record.max_tres_mins), above.mins_per_job if above else ()),
        min_prio_threshold=_first(record.min_prio_threshold, above.min_prio_threshold if above else None),
        max_accrue=_first(record.max_jobs_accrue, above.max_accrue if above else None),
    )


def qos_bounds(qos_record: Qos) -> QosBounds:
    """The bounds of a QOS record, by what they apply to."""
    return QosBounds(
        name=qos_record.name,
        record=qos_record,
        flags=names_of(qos_record.flags),
        grp=parse(qos_record.grp_tres),
        per_job=parse(qos_record.max_tres_pj),
        per_node=parse(qos_record.max_tres_pn),
        per_user=parse(qos_record.max_tres_pu),
        per_account=parse(qos_record.max_tres_pa),
        least=parse(qos_record.min_tres_pj),
        grp_mins=parse(qos_record.grp_tres_mins),
        grp_run_mins=parse(qos_record.grp_tres_run_mins),
        mins_per_job=parse(qos_record.max_tres_mins_pj),
        run_mins_per_user=parse(qos_record.max_tres_run_mins_pu),
        run_mins_per_account=parse(qos_record.max_tres_run_mins_pa),
    )


def _first(nearest: int | None, other: int | None) -> int | None:
    return nearest if nearest is not None else other


def _merged(nearest: Tres, above: Tres) -> Tres:
    return tuple({**dict(above), **dict(nearest)}.items())


def names_of(text: str) -> frozenset[str]:
    """The names in a comma-separated list."""
    return frozenset(text.split(",")) - {""}


def scaled_bounds(bounds: AssocBounds, factor: float) -> AssocBounds:
    """The bounds with the TRES limits multiplied by LimitFactor."""

    def scaled(limits: Tres) -> Tres:
        return tuple((name, int(count * factor)) for name, count in limits)

    return replace(bounds, grp=scaled(bounds.grp), per_job=scaled(bounds.per_job), per_node=scaled(bounds.per_node))


def freed_qos(bounds: QosBounds, exempt: frozenset[str]) -> QosBounds:
    """The bounds without limits on these kinds of TRES, and without limits on a job's time."""
    return replace(
        bounds,
        record=replace(bounds.record, max_wall=None) if "time" in exempt else bounds.record,
        grp=_left(bounds.grp, exempt),
        per_job=_left(bounds.per_job, exempt),
        per_node=_left(bounds.per_node, exempt),
        per_user=_left(bounds.per_user, exempt),
        per_account=_left(bounds.per_account, exempt),
        least=_left(bounds.least, exempt),
    )


def freed_bounds(bounds: AssocBounds, exempt: frozenset[str]) -> AssocBounds:
    """The bounds without limits on these kinds of TRES, and without limits on a job's time."""
    return replace(
        bounds,
        max_wall=None if "time" in exempt else bounds.max_wall,
        grp=_left(bounds.grp, exempt),
        per_job=_left(bounds.per_job, exempt),
        per_node=_left(bounds.per_node, exempt),
    )


def _left(limits: Tres, exempt: frozenset[str]) -> Tres:
    return tuple(item for item in limits if item[0].partition("/")[0] not in exempt)


def bounds_qos(bounds: QosBounds) -> bool:
    """Whether the QOS limits any job."""
    record = bounds.record
    counts = (record.grp_jobs, record.max_jobs_pu, record.max_jobs_pa, record.max_wall)
    return any(value is not None for value in counts) or any(
        (bounds.grp, bounds.per_job, bounds.per_node, bounds.per_user, bounds.per_account, bounds.least)
    )


def bounds_assoc(bounds: AssocBounds) -> bool:
    """Whether the association limits any job."""
    counts = (bounds.record.grp_jobs, bounds.max_jobs, bounds.max_wall)
    return any(value is not None for value in counts) or any((bounds.grp, bounds.per_job, bounds.per_node))


class MinuteLimits(Struct, frozen=True, kw_only=True):
    """One key with its limits in minutes, without those that a QOS of higher precedence replaces."""

    key: tuple[str | int, ...]
    #: whether the key is that of a QOS
    qos: bool
    used: tuple[tuple[str, int], ...] = ()
    running: tuple[tuple[str, int], ...] = ()
    wall: int | None = None
    #: as in `reasons.Excess`
    level: int = 0

    @property
    def bounded(self) -> bool:
        return bool(self.used or self.running or self.wall is not None)
