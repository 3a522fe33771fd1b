"""`show assoc_mgr`: users, associations and QOS of the controller, with the usage of their limits.

Layout as 22.05 prints it: `limit(in use)`, N where there is no limit; the `-o` form has each record on one line.

Source: scontrol(1) show assoc_mgr.
"""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING

from spritz.model.limits.standing import KINDS, AssocStanding, ListStandings, QosStanding, Standing, Standings
from spritz.notation.tres import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spritz.cli.administration.control.session import Session

_FILTERS = ("users", "accounts", "qos", "flags")
#: Slurm's number of a user that is unknown on this machine
_NOBODY = 0xFFFFFFFE
_CLUSTERS_MODE = ("", "cluster")


def show(session: Session, words: list[str]) -> int:
    """show assoc_mgr [users=A,…] [accounts=A,…] [qos=A,…] [flags=users,assoc,qos]"""
    conditions: dict[str, tuple[str, ...]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        name = next((known for known in _FILTERS if key and known.startswith(key.lower())), None)
        if not equals:
            session.say(f"No value given for option {key}")
            return 1
        if name is None:
            session.say(f"invalid entity: {word} for keyword:show assoc_mgr")
            return 1
        conditions[name] = tuple(item for item in value.split(",") if item)
    kinds = []
    for flag in conditions.pop("flags", ()):
        kind = next((known for known in KINDS if known.startswith(flag.lower())), None)
        if kind is None:
            session.say(f"invalid flag '{flag}', valid options are 'Assoc, QOS, and/or Users'")
            return 1
        kinds.append(kind)
    standings = session.call(ListStandings(kinds=tuple(kinds) or KINDS, **conditions), Standings)
    session.out(text(standings, tuple(kinds) or KINDS, oneliner=session.oneliner))
    return 0


def text(standings: Standings, kinds: tuple[str, ...], *, oneliner: bool) -> str:
    """The whole answer. `kinds`: the kinds of records that were requested."""
    page = _Page(standings.tres, oneliner=oneliner)
    parts = ["Current Association Manager state\n"]
    if "users" in kinds:
        users = [
            f"UserName={user.name}({_uid(user.name)}) DefAccount={user.default_account} "
            f"DefWckey={user.default_wckey} AdminLevel={user.admin}\n"
            for user in standings.users
        ]
        parts.append(page.section("User", "users", users))
    if "assoc" in kinds:
        rows = [
            page.record(_association(page, standings.cluster, association)) for association in standings.associations
        ]
        parts.append(page.section("Association", "associations", rows))
    if "qos" in kinds:
        parts.append(page.section("QOS", "QOS", [page.record(_qos(page, qos_record)) for qos_record in standings.qos]))
    return "".join(parts)


class _Page:
    """How lines are laid out, and which TRES are counted."""

    def __init__(self, tres: tuple[str, ...], *, oneliner: bool) -> None:
        self.tres = tres
        self.oneliner = oneliner

    def section(self, title: str, plural: str, rows: list[str]) -> str:
        before, after = ("", "\n") if self.oneliner else ("\n", "\n\n")
        if not rows:
            return f"{before}No {plural} currently cached in Slurm.{after}"
        return f"{before}{title} Records{after}" + "".join(rows)

    def record(self, lines: list[str]) -> str:
        return (" " if self.oneliner else "\n    ").join(lines) + "\n"

    def counted(self, limits: str, in_use: Mapping[str, float], per: float = 1.0) -> str:
        """Every TRES: `limit(in use)`."""
        bounds = dict(parse(limits))
        return ",".join(
            f"{name}={_or_n(bounds.get(name))}({int(in_use.get(name, 0) / per)})"
            for name in dict.fromkeys((*self.tres, *bounds))
        )

    def shares(self, title: str, rows: list[tuple[str, list[str]]]) -> str:
        """Limits of each account or user of a QOS."""
        kind = title.partition(" ")[0] + "s"
        if self.oneliner:
            sections = [f" {name}={{{' '.join(lines)}}}" for name, lines in rows]
            return f"{title}=" + ("".join(sections) or f"No {kind}")
        sections = [f"\n      {name}" + "".join(f"\n        {line}" for line in lines) for name, lines in rows]
        return title + ("".join(sections) or f"\n        No {kind}")


def _association(page: _Page, cluster: str, assoc_standing: AssocStanding) -> list[str]:
    record, use = assoc_standing.record, assoc_standing.standing
    user = f"{record.user}({_uid(record.user)})" if record.user else ""
    parent = f"{record.parent}({assoc_standing.parent_id})" if record.parent and not record.user else ""
    jobs = "" if record.max_jobs is None else f"{record.max_jobs}({use.jobs})"
    accruing = "" if record.max_jobs_accrue is None else f"{record.max_jobs_accrue}({use.accruing})"
    submitted = "" if record.max_submit is None else f"{record.max_submit}({use.submitted})"
    return [
        f"ClusterName={cluster} Account={record.account} UserName={user} Partition={record.partition} "
        f"Priority={record.priority or 0} ID={record.id}",
        f"SharesRaw/Norm/Level/Factor={record.shares}/{assoc_standing.norm_shares:.2f}/{assoc_standing.siblings}/{assoc_standing.factor:.2f}",
        f"UsageRaw/Norm/Efctv={use.usage:.2f}/{assoc_standing.norm_usage:.2f}/{assoc_standing.effective_usage:.2f}",
        f"ParentAccount={parent} Lft={assoc_standing.left} DefAssoc={'Yes' if record.is_default else 'No'}",
        f"GrpJobs={_or_n(record.grp_jobs)}({use.jobs}) GrpJobsAccrue={_or_n(record.grp_jobs_accrue)}({use.accruing})",
        f"GrpSubmitJobs={_or_n(record.grp_submit)}({use.submitted}) "
        f"GrpWall={_or_n(record.grp_wall)}({use.wall / 60:.2f})",
        *_group(page, record.grp_tres, record.grp_tres_mins, record.grp_tres_run_mins, use),
        f"MaxJobs={jobs} MaxJobsAccrue={accruing} MaxSubmitJobs={submitted} MaxWallPJ={_or_blank(record.max_wall)}",
        f"MaxTRESPJ={_plain(record.max_tres)}",
        f"MaxTRESPN={_plain(record.max_tres_per_node)}",
        f"MaxTRESMinsPJ={_plain(record.max_tres_mins)}",
        f"MinPrioThresh={_or_blank(record.min_prio_threshold)}",
    ]


def _qos(page: _Page, qos_standing: QosStanding) -> list[str]:
    record, use = qos_standing.record, qos_standing.standing
    mode = "OFF" if record.preempt_mode.lower() in _CLUSTERS_MODE else record.preempt_mode.upper()
    limits_of: tuple[tuple[str, int | None, int | None, int | None, str], ...] = (
        ("PA", record.max_jobs_pa, record.max_jobs_accrue_pa, record.max_submit_pa, record.max_tres_pa),
        ("PU", record.max_jobs_pu, record.max_jobs_accrue_pu, record.max_submit_pu, record.max_tres_pu),
    )
    account, user = (_each(page, *limits) for limits in limits_of)
    return [
        f"QOS={record.name}({record.id})",
        f"UsageRaw={use.usage:.6f}",
        f"GrpJobs={_or_n(record.grp_jobs)}({use.jobs}) GrpJobsAccrue={_or_n(record.grp_jobs_accrue)}({use.accruing}) "
        f"GrpSubmitJobs={_or_n(record.grp_submit)}({use.submitted}) "
        f"GrpWall={_or_n(record.grp_wall)}({use.wall / 60:.2f})",
        *_group(page, record.grp_tres, record.grp_tres_mins, record.grp_tres_run_mins, use),
        f"MaxWallPJ={_or_blank(record.max_wall)}",
        f"MaxTRESPJ={_plain(record.max_tres_pj)}",
        f"MaxTRESPN={_plain(record.max_tres_pn)}",
        f"MaxTRESMinsPJ={_plain(record.max_tres_mins_pj)}",
        f"MinPrioThresh={_or_blank(record.min_prio_threshold)} ",
        f"MinTRESPJ={_plain(record.min_tres_pj)}",
        f"PreemptMode={mode}",
        f"Priority={record.priority}",
        page.shares("Account Limits", [(name, account(counts)) for name, counts in qos_standing.accounts]),
        page.shares("User Limits", [(str(_uid(name)), user(counts)) for name, counts in qos_standing.users]),
    ]


def _group(page: _Page, tres: str, minutes: str, running: str, use: Standing) -> list[str]:
    return [
        f"GrpTRES={page.counted(tres, use.tres)}",
        f"GrpTRESMins={page.counted(minutes, use.used, 60.0)}",
        f"GrpTRESRunMins={page.counted(running, use.ahead, 60.0)}",
    ]


def _each(
    page: _Page, suffix: str, jobs: int | None, accruing: int | None, submitted: int | None, tres: str
) -> Callable[[Standing], list[str]]:
    """Lines of one account or user under the limits that hold for each."""

    def lines(use: Standing) -> list[str]:
        return [
            f"MaxJobs{suffix}={_or_n(jobs)}({use.jobs}) MaxJobsAccrue{suffix}={_or_n(accruing)}({use.accruing}) "
            f"MaxSubmitJobs{suffix}={_or_n(submitted)}({use.submitted})",
            f"MaxTRES{suffix}={page.counted(tres, use.tres)}",
        ]

    return lines


def _or_n(limit: int | None) -> str:
    return "N" if limit is None else str(limit)


def _or_blank(limit: int | None) -> str:
    return "" if limit is None else str(limit)


def _plain(limits: str) -> str:
    return ",".join(f"{name}={count}" for name, count in parse(limits))


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return _NOBODY
