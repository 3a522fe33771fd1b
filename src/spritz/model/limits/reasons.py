"""Kind of limit and TRES -> the reason that Slurm shows. Source: squeue(1) JOB REASON CODES."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spritz.model.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

#: kind of limit -> reason for each kind of TRES
_REASONS: dict[str, dict[str, Reason]] = {
    "assoc_grp": {
        "cpu": Reason.ASSOC_GRP_CPU,
        "mem": Reason.ASSOC_GRP_MEM,
        "node": Reason.ASSOC_GRP_NODE,
        "gres": Reason.ASSOC_GRP_GRES,
        "license": Reason.ASSOC_GRP_LICENSE,
        "billing": Reason.ASSOC_GRP_BILLING,
        "": Reason.ASSOC_GRP_UNKNOWN,
    },
    "assoc_job": {
        "cpu": Reason.ASSOC_MAX_CPU_PER_JOB,
        "mem": Reason.ASSOC_MAX_MEM_PER_JOB,
        "node": Reason.ASSOC_MAX_NODE_PER_JOB,
        "gres": Reason.ASSOC_MAX_GRES_PER_JOB,
        "license": Reason.ASSOC_MAX_LICENSE_PER_JOB,
        "billing": Reason.ASSOC_MAX_BILLING_PER_JOB,
        "": Reason.ASSOC_MAX_UNKNOWN_PER_JOB,
    },
    "assoc_node": {
        "cpu": Reason.ASSOC_MAX_CPU_PER_NODE,
        "gres": Reason.ASSOC_MAX_GRES_PER_NODE,
        "": Reason.ASSOC_MAX_UNKNOWN_PER_NODE,
    },
    "qos_grp": {
        "cpu": Reason.QOS_GRP_CPU,
        "mem": Reason.QOS_GRP_MEM,
        "node": Reason.QOS_GRP_NODE,
        "gres": Reason.QOS_GRP_GRES,
        "license": Reason.QOS_GRP_LICENSE,
        "billing": Reason.QOS_GRP_BILLING,
        "": Reason.QOS_GRP_UNKNOWN,
    },
    "qos_job": {
        "cpu": Reason.QOS_MAX_CPU_PER_JOB,
        "mem": Reason.QOS_MAX_MEM_PER_JOB,
        "node": Reason.QOS_MAX_NODE_PER_JOB,
        "gres": Reason.QOS_MAX_GRES_PER_JOB,
        "license": Reason.QOS_MAX_LICENSE_PER_JOB,
        "billing": Reason.QOS_MAX_BILLING_PER_JOB,
        "": Reason.QOS_MAX_UNKNOWN_PER_JOB,
    },
    "qos_node": {
        "cpu": Reason.QOS_MAX_CPU_PER_NODE,
        "mem": Reason.QOS_MAX_MEM_PER_NODE,
        "gres": Reason.QOS_MAX_GRES_PER_NODE,
        "": Reason.QOS_MAX_UNKNOWN_PER_NODE,
    },
    "qos_user": {
        "cpu": Reason.QOS_MAX_CPU_PER_USER,
        "mem": Reason.QOS_MAX_MEM_PER_USER,
        "node": Reason.QOS_MAX_NODE_PER_USER,
        "gres": Reason.QOS_MAX_GRES_PER_USER,
        "license": Reason.QOS_MAX_LICENSE_PER_USER,
        "billing": Reason.QOS_MAX_BILLING_PER_USER,
        "": Reason.QOS_MAX_UNKNOWN_PER_USER,
    },
    "qos_account": {
        "cpu": Reason.MAX_CPU_PER_ACCOUNT,
        "mem": Reason.MAX_MEM_PER_ACCOUNT,
        "node": Reason.MAX_NODE_PER_ACCOUNT,
        "gres": Reason.MAX_GRES_PER_ACCOUNT,
        "license": Reason.MAX_LICENSE_PER_ACCOUNT,
        "billing": Reason.MAX_BILLING_PER_ACCOUNT,
        "": Reason.MAX_UNKNOWN_PER_ACCOUNT,
    },
    "qos_least": {
        "cpu": Reason.QOS_MIN_CPU,
        "mem": Reason.QOS_MIN_MEM,
        "node": Reason.QOS_MIN_NODE,
        "gres": Reason.QOS_MIN_GRES,
        "license": Reason.QOS_MIN_LICENSE,
        "billing": Reason.QOS_MIN_BILLING,
        "": Reason.QOS_MIN_UNKNOWN,
    },
    "assoc_minutes": {
        "cpu": Reason.ASSOC_GRP_CPU_MINUTES,
        "mem": Reason.ASSOC_GRP_MEM_MINUTES,
        "node": Reason.ASSOC_GRP_NODE_MINUTES,
        "gres": Reason.ASSOC_GRP_GRES_MINUTES,
        "license": Reason.ASSOC_GRP_LICENSE_MINUTES,
        "billing": Reason.ASSOC_GRP_BILLING_MINUTES,
        "": Reason.ASSOC_GRP_UNKNOWN_MINUTES,
    },
    "assoc_running": {
        "cpu": Reason.ASSOC_GRP_CPU_RUN_MINUTES,
        "mem": Reason.ASSOC_GRP_MEM_RUN_MINUTES,
        "node": Reason.ASSOC_GRP_NODE_RUN_MINUTES,
        "gres": Reason.ASSOC_GRP_GRES_RUN_MINUTES,
        "license": Reason.ASSOC_GRP_LICENSE_RUN_MINUTES,
        "billing": Reason.ASSOC_GRP_BILLING_RUN_MINUTES,
        "": Reason.ASSOC_GRP_UNKNOWN_RUN_MINUTES,
    },
    "assoc_job_minutes": {
        "cpu": Reason.ASSOC_MAX_CPU_MINUTES_PER_JOB,
        "mem": Reason.ASSOC_MAX_MEM_MINUTES_PER_JOB,
        "node": Reason.ASSOC_MAX_NODE_MINUTES_PER_JOB,
        "gres": Reason.ASSOC_MAX_GRES_MINUTES_PER_JOB,
        "license": Reason.ASSOC_MAX_LICENSE_MINUTES_PER_JOB,
        "billing": Reason.ASSOC_MAX_BILLING_MINUTES_PER_JOB,
        "": Reason.ASSOC_MAX_UNKNOWN_MINUTES_PER_JOB,
    },
    "qos_minutes": {
        "cpu": Reason.QOS_GRP_CPU_MINUTES,
        "mem": Reason.QOS_GRP_MEM_MINUTES,
        "node": Reason.QOS_GRP_NODE_MINUTES,
        "gres": Reason.QOS_GRP_GRES_MINUTES,
        "license": Reason.QOS_GRP_LICENSE_MINUTES,
        "billing": Reason.QOS_GRP_BILLING_MINUTES,
        "": Reason.QOS_GRP_UNKNOWN_MINUTES,
    },
    "qos_running": {
        "cpu": Reason.QOS_GRP_CPU_RUN_MINUTES,
        "mem": Reason.QOS_GRP_MEM_RUN_MINUTES,
        "node": Reason.QOS_GRP_NODE_RUN_MINUTES,
        "gres": Reason.QOS_GRP_GRES_RUN_MINUTES,
        "license": Reason.QOS_GRP_LICENSE_RUN_MINUTES,
        "billing": Reason.QOS_GRP_BILLING_RUN_MINUTES,
        "": Reason.QOS_GRP_UNKNOWN_RUN_MINUTES,
    },
    "qos_job_minutes": {
        "cpu": Reason.QOS_MAX_CPU_MINUTES_PER_JOB,
        "mem": Reason.QOS_MAX_MEM_MINUTES_PER_JOB,
        "node": Reason.QOS_MAX_NODE_MINUTES_PER_JOB,
        "gres": Reason.QOS_MAX_GRES_MINUTES_PER_JOB,
        "license": Reason.QOS_MAX_LICENSE_MINUTES_PER_JOB,
        "billing": Reason.QOS_MAX_BILLING_MINUTES_PER_JOB,
        "": Reason.QOS_MAX_UNKNOWN_MINUTES_PER_JOB,
    },
}

#: every reason that a limit gives
LIMIT_REASONS: frozenset[Reason] = frozenset(reason for kinds in _REASONS.values() for reason in kinds.values()) | {
    Reason.ASSOC_GRP_JOBS,
    Reason.ASSOC_GRP_WALL,
    Reason.QOS_GRP_WALL,
    Reason.QOS_USAGE_THRESHOLD,
    Reason.ASSOC_MAX_JOBS,
    Reason.ASSOC_MAX_WALL,
    Reason.QOS_GRP_JOBS,
    Reason.QOS_MAX_JOBS_PER_USER,
    Reason.MAX_JOBS_PER_ACCOUNT,
    Reason.QOS_MAX_WALL,
}


#: The order in which Slurm 22.05 checks limits when a job might start; it reports the first that holds the job back.
#: Each of these groups is checked for one QOS, or one association of the tree, after the other.
_ORDER: tuple[tuple[Reason | str, ...], ...] = (
    (
        Reason.QOS_GRP_JOBS,
        Reason.QOS_GRP_WALL,
        Reason.MAX_JOBS_PER_ACCOUNT,
        Reason.QOS_MAX_JOBS_PER_USER,
        Reason.QOS_MAX_WALL,
    ),
    (Reason.ASSOC_GRP_JOBS, Reason.ASSOC_GRP_WALL, Reason.ASSOC_MAX_JOBS, Reason.ASSOC_MAX_WALL),
    (),  # more nodes than a limit allows at all: `Excess.nodes`
    (
        *("qos_minutes", "qos_grp", "qos_running", "qos_job_minutes", "qos_job", "qos_node", "qos_least"),
        *("qos_account", "qos_user"),
    ),
    ("assoc_minutes", "assoc_grp", "assoc_running", "assoc_job_minutes", "assoc_job", "assoc_node"),
)
#: the order in which it checks limits when a job is submitted
_AT_SUBMISSION: tuple[tuple[Reason | str, ...], ...] = (
    (
        *("qos_account", "qos_user", "qos_grp"),
        Reason.QOS_GRP_SUBMIT,
        *("qos_job_minutes", "qos_minutes", "qos_running"),
        Reason.QOS_MAX_WALL,
        Reason.QOS_GRP_WALL,
        *("qos_job", "qos_node"),
        Reason.MAX_SUBMIT_PER_ACCOUNT,
        Reason.QOS_MAX_SUBMIT_PER_USER,
        "qos_least",
    ),
    (
        "assoc_grp",
        Reason.ASSOC_GRP_SUBMIT,
        *("assoc_minutes", "assoc_running"),
        Reason.ASSOC_GRP_WALL,
        *("assoc_job", "assoc_node"),
        Reason.ASSOC_MAX_SUBMIT,
        "assoc_job_minutes",
        Reason.ASSOC_MAX_WALL,
    ),
)


class Excess(NamedTuple):
    """A limit that a job exceeds. `level`: position of its QOS in their precedence, or of its association, 0 being the
    job's own and 1 its account's. `nodes`: the job alone asks for more nodes than it allows, which is checked early.
    """

    reason: Reason
    level: int = 0
    nodes: bool = False


def _ranks(order: tuple[tuple[Reason | str, ...], ...]) -> dict[Reason, tuple[int, int]]:
    """Group of each reason, and position in the group."""
    ranks: dict[Reason, tuple[int, int]] = {}
    for group, kinds in enumerate(order):
        for place, item in enumerate(kinds):
            for reason in (item,) if isinstance(item, Reason) else _REASONS[item].values():
                ranks.setdefault(reason, (group, place))
    return ranks


_NODES = _ORDER.index(())
_RANKS = _ranks(_ORDER)
_SUBMISSION_RANKS = _ranks(_AT_SUBMISSION)


def first_of(excesses: Iterable[Excess | None], *, submitted: bool = False) -> Excess | None:
    """The one that Slurm would show, for a waiting job or (`submitted`) at submission; None if there is none."""
    ranks = _SUBMISSION_RANKS if submitted else _RANKS

    def place(excess: Excess) -> tuple[int, int, int]:
        group, within = (_NODES, 0) if excess.nodes else ranks.get(excess.reason, (0, 0))
        return group, excess.level, within

    return min((excess for excess in excesses if excess is not None), key=place, default=None)


def rank_of(reason: str) -> tuple[int, int] | None:
    """The position of the reason in that order, levels aside; None if it is not a limit's."""
    return _RANKS.get(reason)  # type: ignore[call-overload,no-any-return]  # a Reason equals its text


def reason_of(kind: str, tres: str) -> Reason:
    """The reason for a limit on one TRES."""
    table = _REASONS[kind]
    return table.get(tres.partition("/")[0]) or table[""]
