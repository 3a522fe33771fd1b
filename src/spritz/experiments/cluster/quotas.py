"""Limits of a user's associations and QOS as text, with their usage: from sacctmgr, squeue and sshare."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from spritz.experiments.cluster import slurm
from spritz.experiments.cluster.advice import size
from spritz.experiments.errors import ExperimentError

_ASSOCIATION = (
    "Account", "User", "Partition", "ParentName", "GrpTRES", "GrpJobs", "GrpSubmit", "GrpWall", "GrpTRESMins",
    "MaxTRES", "MaxJobs", "MaxSubmit", "MaxWall", "MaxTRESMins", "QOS",
)  # fmt: skip
_QOS = (
    "Name", "GrpTRES", "GrpJobs", "GrpSubmit", "GrpWall", "GrpTRESMins", "MaxTRES", "MaxWall", "MaxTRESMins",
    "MaxTRESPU", "MaxJobsPU", "MaxSubmitPU",
)  # fmt: skip
_NAMES = {"cpu": "CPUs", "mem": "memory", "node": "nodes", "gres/gpu": "GPUs", "billing": "billing units"}


@dataclass
class Using:
    """The resources and counts of some of the jobs that are queued now."""

    running: int = 0
    submitted: int = 0
    tres: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Job:
    """A queued job, as far as limits count it."""

    account: str
    qos: str
    user: str
    running: bool
    tres: dict[str, float]


def jobs() -> list[Job]:
    """All that we may see. Raises ExperimentError."""
    names = "Account:.200,QOS:.200,UserName:.200,StateCompact:.20,tres-alloc:.2000".replace(".", "")
    done = slurm.call(["squeue", "-h", "-r", "-O", names])
    if done.returncode:
        raise ExperimentError(f"squeue: {slurm.said(done)}")
    queued_jobs = []
    for line in done.stdout.splitlines():
        account, qos, user, state, tres = (line[at:end].strip() for at, end in _COLUMNS)
        running = state in ("R", "CG", "CF", "S", "ST")
        queued_jobs.append(Job(account, qos, user, running, counts(tres) if running else {}))
    return queued_jobs


_COLUMNS = ((0, 200), (200, 400), (400, 600), (600, 620), (620, 2620))


def counts(text: str) -> dict[str, float]:
    """`cpu=4,mem=2G,gres/gpu=1` as numbers; memory in bytes."""
    amounts = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            amounts[name] = size(value)
    return amounts


def using(all_jobs: list[Job], *, accounts: frozenset[str] = frozenset(), qos: str = "", user: str = "") -> Using:
    """Resources of the jobs of these accounts, this QOS and this user; an empty condition matches all."""
    result = Using()
    for job in all_jobs:
        if (accounts and job.account not in accounts) or (qos and job.qos != qos) or (user and job.user != user):
            continue
        result.submitted += 1
        result.running += job.running
        result.tres.update(job.tres)
    return result


def table(command: list[str], names: tuple[str, ...]) -> list[dict[str, str]]:
    """Rows of a sacctmgr command, each with these fields. Raises ExperimentError if it fails."""
    done = slurm.call([*command, f"format={','.join(names)}"])
    if done.returncode:
        raise ExperimentError(f"sacctmgr: {slurm.said(done)}", hint="Limits need accounting (slurmdbd)")
    rows = [line.split("|") for line in done.stdout.splitlines()]
    return [dict(zip(names, row, strict=False)) for row in rows if len(row) >= len(names)]


def words(row: dict[str, str], group: Using, of_user: Using) -> list[str]:
    """The limits of one association or QOS: of all its jobs, of its user's, of each job."""
    sentences = []
    for name, limit in counts(row.get("GrpTRES", "")).items():
        sentences.append(f"all jobs together: at most {_amount(name, limit)}; {_left(name, limit, group.tres[name])}")
    for name, limit in counts(row.get("GrpTRESMins", "")).items():
        sentences.append(f"all jobs together: {_minutes(name, limit)} in all")
    sentences += _number(row, "GrpJobs", "all jobs together: at most {} running", group.running, "running")
    sentences += _number(row, "GrpSubmit", "all jobs together: at most {} queued or running", group.submitted, "there")
    if row.get("GrpWall"):
        sentences.append(f"all jobs together: {row['GrpWall']} of running in all")
    for name, limit in counts(row.get("MaxTRESPU", "")).items():
        sentences.append(
            f"your jobs together: at most {_amount(name, limit)}; {_left(name, limit, of_user.tres[name])}"
        )
    for key in ("MaxJobs", "MaxJobsPU"):
        sentences += _number(row, key, "your jobs: at most {} running", of_user.running, "running")
    for key in ("MaxSubmit", "MaxSubmitPU"):
        sentences += _number(row, key, "your jobs: at most {} queued or running", of_user.submitted, "there")
    for name, limit in counts(row.get("MaxTRES", "")).items():
        sentences.append(f"each job: at most {_amount(name, limit)}")
    for name, limit in counts(row.get("MaxTRESMins", "")).items():
        sentences.append(f"each job: at most {_minutes(name, limit)}")
    if row.get("MaxWall"):
        sentences.append(f"each job: at most {row['MaxWall']} long")
    return sentences


def _number(row: dict[str, str], key: str, text: str, have: int, what: str) -> list[str]:
    value = row.get(key, "")
    if not value.isdecimal():
        return []
    remaining = max(0, int(value) - have)
    return [f"{text.format(value)}; {have} {what}, {remaining} left" if remaining else f"{text.format(value)}: used up"]


def _amount(name: str, value: float) -> str:
    if name == "mem":
        return f"{value / (1 << 30):.4g} GiB of memory"
    label = _NAMES.get(name)
    if label:
        return f"{value:.0f} {label[:-1] if value == 1 and label.endswith('s') else label}"
    return f"{value:.0f} of {name}"


def _left(name: str, limit: float, have: float) -> str:
    if have >= limit:
        return "used up"
    scale = 1 << 30 if name == "mem" else 1
    return f"{have / scale:.4g} in use, {(limit - have) / scale:.4g} left"


def _minutes(name: str, limit: float) -> str:
    # Minutes of memory are of MiB, which counts() has as a plain number.
    return f"{limit:.0f} minutes of {_NAMES.get(name, name)}"


def limit_lines(user: str) -> list[str]:
    """All limits of a user, in words. Raises ExperimentError."""
    associations = table(["sacctmgr", "-nP", "show", "assoc"], _ASSOCIATION)
    user_associations = [row for row in associations if row["User"] == user]
    if not user_associations:
        return [f"{user} has no association: jobs are limited by partitions alone (`sinfo -o '%P %l'`)."]
    by_account = {row["Account"]: row for row in associations if not row["User"]}
    all_jobs = jobs()
    lines: list[str] = []
    for row in user_associations:
        account, where = row["Account"], f" on partition {row['Partition']}" if row["Partition"] else ""
        lines.append(f"Account {account}{where}  (QOS {row['QOS'] or 'normal'})")
        limits = words(row, *[using(all_jobs, accounts=frozenset([account]), user=user)] * 2)
        own_lines = [line.replace("all jobs together", "your jobs together") for line in limits]
        above = account
        seen: set[str] = set()
        while above and above not in seen:
            seen.add(above)
            parent = by_account.get(above, {})
            shared = using(all_jobs, accounts=_below(above, by_account))
            group = {key: value for key, value in parent.items() if key.startswith("Grp")}
            for line in words(group, shared, shared):
                own_lines.append(line.replace("all jobs together", f"all jobs of account {above} together"))
            above = parent.get("ParentName", "")
        lines += [f"  {line}" for line in own_lines or ["no limits"]]
    names = {name for row in user_associations for name in row["QOS"].split(",") if name}
    for row in table(["sacctmgr", "-nP", "show", "qos"], _QOS):
        if row["Name"] in names:
            limits = words(row, using(all_jobs, qos=row["Name"]), using(all_jobs, qos=row["Name"], user=user))
            lines += [f"QOS {row['Name']}", *(f"  {line}" for line in limits or ["no limits"])]
    return [*lines, *shares(user)]


def _below(account: str, by_account: dict[str, dict[str, str]]) -> frozenset[str]:
    """The account and all below it."""
    accounts = {account}
    while more := {name for name, row in by_account.items() if row["ParentName"] in accounts} - accounts:
        accounts |= more
    return frozenset(accounts)


def shares(user: str) -> list[str]:
    """Fair share in words; none where the cluster does not keep it."""
    done = slurm.call(["sshare", "-nP", "-u", user, "-U", "-o", "Account,EffectvUsage,NormShares,FairShare"])
    lines = []
    for line in done.stdout.splitlines() if not done.returncode else []:
        account, usage, norm, fair = ([*line.strip().split("|"), "", "", ""])[:4]
        try:
            lines.append(
                f"Fair share in {account.strip()}: {100 * float(usage):.1f}% of its usage is yours, "
                f"your share is {100 * float(norm):.1f}%; factor {float(fair):.2f} of 1"
            )
        except ValueError:
            continue
    return lines
