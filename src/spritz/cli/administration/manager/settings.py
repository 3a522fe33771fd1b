"""Settings of associations and QOS: their words, the field of the record, and how values are parsed and shown.

Source: sacctmgr(1) SPECIFICATIONS FOR ASSOCIATIONS, QOS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.administration.manager.arguments import Word, match
from spritz.model.errors import SpritzError
from spritz.model.ids import INFINITE
from spritz.model.limits import flags
from spritz.model.limits.records import SHARES_PARENT, Association, Qos
from spritz.notation import tres
from spritz.notation.duration import format_minutes, parse_minutes, parse_seconds
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Word -> (field of the record, kind of value, title in sacctmgr's output).
ASSOCIATION: dict[str, tuple[str, str, str]] = {
    "fairshare": ("shares", "shares", "Fairshare"),
    "shares": ("shares", "shares", "Fairshare"),
    "grpjobs": ("grp_jobs", "count", "GrpJobs"),
    "grpjobsaccrue": ("grp_jobs_accrue", "count", "GrpJobsAccrue"),
    "grpsubmitjobs": ("grp_submit", "count", "GrpSubmitJobs"),
    "grptres": ("grp_tres", "tres", "GrpTRES"),
    "grpcpus": ("grp_tres", "tres:cpu", "GrpTRES"),
    "grpmemory": ("grp_tres", "tres:mem", "GrpTRES"),
    "grpnodes": ("grp_tres", "tres:node", "GrpTRES"),
    "maxjobs": ("max_jobs", "count", "MaxJobs"),
    "maxjobsaccrue": ("max_jobs_accrue", "count", "MaxJobsPrioAcc"),
    "maxsubmitjobs": ("max_submit", "count", "MaxSubmitJobs"),
    "maxtresperjob": ("max_tres", "tres", "MaxTRES"),
    "maxtrespj": ("max_tres", "tres", "MaxTRES"),
    "maxtrespernode": ("max_tres_per_node", "tres", "MaxTRESPerNode"),
    "maxtrespn": ("max_tres_per_node", "tres", "MaxTRESPerNode"),
    "maxcpusperjob": ("max_tres", "tres:cpu", "MaxTRES"),
    "maxnodesperjob": ("max_tres", "tres:node", "MaxTRES"),
    "maxwalldurationperjob": ("max_wall", "minutes", "MaxWall"),
    "grptresmins": ("grp_tres_mins", "tres", "GrpTRESMins"),
    "grpcpumins": ("grp_tres_mins", "tres:cpu", "GrpTRESMins"),
    "grptresrunmins": ("grp_tres_run_mins", "tres", "GrpTRESRunMins"),
    "grpcpurunmins": ("grp_tres_run_mins", "tres:cpu", "GrpTRESRunMins"),
    "grpwall": ("grp_wall", "minutes", "GrpWall"),
    "maxtresminsperjob": ("max_tres_mins", "tres", "MaxTRESMins"),
    "maxtresminspj": ("max_tres_mins", "tres", "MaxTRESMins"),
    "maxtresmins": ("max_tres_mins", "tres", "MaxTRESMins"),
    "maxcpuminsperjob": ("max_tres_mins", "tres:cpu", "MaxTRESMins"),
    "minpriothreshold": ("min_prio_threshold", "count", "MinPrioThresh"),
    "priority": ("priority", "count", "Priority"),
    "defaultqos": ("default_qos", "name", "DefQOS"),
    "guarantee": ("guarantee", "tres", "Guarantee"),
    "reclaimafter": ("reclaim_after", "minutes", "ReclaimAfter"),
    "qoslevel": ("qos", "list", "QOS"),
    "qos": ("qos", "list", "QOS"),
}
QOS: dict[str, tuple[str, str, str]] = {
    "description": ("description", "text", "Description"),
    "priority": ("priority", "count", "Priority"),
    "flags": ("flags", "flags", "Flags"),
    "grpjobs": ("grp_jobs", "count", "GrpJobs"),
    "grpjobsaccrue": ("grp_jobs_accrue", "count", "GrpJobsAccrue"),
    "grpsubmitjobs": ("grp_submit", "count", "GrpSubmitJobs"),
    "grptres": ("grp_tres", "tres", "GrpTRES"),
    "grpcpus": ("grp_tres", "tres:cpu", "GrpTRES"),
    "grpmemory": ("grp_tres", "tres:mem", "GrpTRES"),
    "grpnodes": ("grp_tres", "tres:node", "GrpTRES"),
    "maxjobsperuser": ("max_jobs_pu", "count", "MaxJobsPU"),
    "maxjobspu": ("max_jobs_pu", "count", "MaxJobsPU"),
    "maxjobsperaccount": ("max_jobs_pa", "count", "MaxJobsPA"),
    "maxjobspa": ("max_jobs_pa", "count", "MaxJobsPA"),
    "maxjobsaccrueperaccount": ("max_jobs_accrue_pa", "count", "MaxJobsAccruePerAccount"),
    "maxjobsaccruepa": ("max_jobs_accrue_pa", "count", "MaxJobsAccruePerAccount"),
    "maxjobsaccrueperuser": ("max_jobs_accrue_pu", "count", "MaxJobsAccruePerUser"),
    "maxjobsaccruepu": ("max_jobs_accrue_pu", "count", "MaxJobsAccruePerUser"),
    "maxsubmitjobsperuser": ("max_submit_pu", "count", "MaxSubmitPU"),
    "maxsubmitpu": ("max_submit_pu", "count", "MaxSubmitPU"),
    "maxsubmitjobspu": ("max_submit_pu", "count", "MaxSubmitPU"),
    "maxsubmitjobsperaccount": ("max_submit_pa", "count", "MaxSubmitPA"),
    "maxsubmitpa": ("max_submit_pa", "count", "MaxSubmitPA"),
    "maxsubmitjobspa": ("max_submit_pa", "count", "MaxSubmitPA"),
    "maxtresperuser": ("max_tres_pu", "tres", "MaxTRESPerUser"),
    "maxtrespu": ("max_tres_pu", "tres", "MaxTRESPerUser"),
    "maxtresperaccount": ("max_tres_pa", "tres", "MaxTRESPerAccount"),
    "maxtrespa": ("max_tres_pa", "tres", "MaxTRESPerAccount"),
    "maxtresperjob": ("max_tres_pj", "tres", "MaxTRESPerJob"),
    "maxtrespj": ("max_tres_pj", "tres", "MaxTRESPerJob"),
    "maxtrespernode": ("max_tres_pn", "tres", "MaxTRESPerNode"),
    "maxtrespn": ("max_tres_pn", "tres", "MaxTRESPerNode"),
    "maxcpusperuser": ("max_tres_pu", "tres:cpu", "MaxTRESPerUser"),
    "maxnodesperuser": ("max_tres_pu", "tres:node", "MaxTRESPerUser"),
    "maxcpusperjob": ("max_tres_pj", "tres:cpu", "MaxTRESPerJob"),
    "maxnodesperjob": ("max_tres_pj", "tres:node", "MaxTRESPerJob"),
    "maxwalldurationperjob": ("max_wall", "minutes", "MaxWall"),
    "mintresperjob": ("min_tres_pj", "tres", "MinTRESPerJob"),
    "mintres": ("min_tres_pj", "tres", "MinTRESPerJob"),
    "mincpus": ("min_tres_pj", "tres:cpu", "MinTRESPerJob"),
    "gracetime": ("grace_seconds", "number", "GraceTime"),
    "grptresmins": ("grp_tres_mins", "tres", "GrpTRESMins"),
    "grpcpumins": ("grp_tres_mins", "tres:cpu", "GrpTRESMins"),
    "grptresrunmins": ("grp_tres_run_mins", "tres", "GrpTRESRunMins"),
    "grpcpurunmins": ("grp_tres_run_mins", "tres:cpu", "GrpTRESRunMins"),
    "grpwall": ("grp_wall", "minutes", "GrpWall"),
    "maxtresminsperjob": ("max_tres_mins_pj", "tres", "MaxTRESMinsPerJob"),
    "maxtresminspj": ("max_tres_mins_pj", "tres", "MaxTRESMinsPerJob"),
    "maxtresmins": ("max_tres_mins_pj", "tres", "MaxTRESMinsPerJob"),
    "maxcpuminsperjob": ("max_tres_mins_pj", "tres:cpu", "MaxTRESMinsPerJob"),
    "maxtresrunminsperuser": ("max_tres_run_mins_pu", "tres", "MaxTRESRunMinsPU"),
    "maxtresrunminspu": ("max_tres_run_mins_pu", "tres", "MaxTRESRunMinsPU"),
    "maxtresrunminsperaccount": ("max_tres_run_mins_pa", "tres", "MaxTRESRunMinsPA"),
    "maxtresrunminspa": ("max_tres_run_mins_pa", "tres", "MaxTRESRunMinsPA"),
    "minpriothreshold": ("min_prio_threshold", "count", "MinPrioThresh"),
    "usagefactor": ("usage_factor", "factor", "UsageFactor"),
    "usagethreshold": ("usage_threshold", "fraction", "UsageThreshold"),
    "limitfactor": ("limit_factor", "fraction", "LimitFactor"),
    "preempt": ("preempt", "others", "Preempt"),
    "preemptmode": ("preempt_mode", "preempt mode", "PreemptMode"),
    "preemptexempttime": ("preempt_exempt_seconds", "seconds", "PreemptExemptTime"),
}
_PREEMPT_MODES = ("off", "cluster", "cancel", "gang", "requeue", "suspend", "within", "priority")
#: a QOS flag in lower case -> its word
FLAGS = {name.lower(): name for name in flags.FLAGS}


class Unknown(SpritzError):
    """An unknown word. `before`: sacctmgr's message about a bad value, which precedes its message about the word."""

    def __init__(self, word: str, before: str = "") -> None:
        super().__init__(word)
        self.before = before

    @property
    def lines(self) -> str:
        """The text that sacctmgr prints to standard error."""
        return f"{self.before} Unknown option: {self.message}\n Use keyword 'where' to modify condition\n"


class UnknownFlag(Unknown):
    """A list of QOS flags with an unknown flag."""

    @property
    def lines(self) -> str:
        """The text that sacctmgr prints to standard error."""
        valid = ",".join(FLAGS.values())
        return f" Unknown QOS flag used in:\n  '{self.message}'\n Valid QOS flags are\n  '{valid}'\n"


#: Messages of 22.05 for a bad value, by kind of value.
_BAD = {
    "shares": "sacctmgr: error: Invalid value for {title} ({value})\n",
    "count": "sacctmgr: error: Invalid value for {title} ({value})\n",
    "minutes": " Bad {title} time format: {word}\n",
}


Target = Association | Qos


def apply(record: Target, words: Iterable[Word], shown: dict[str, str], inherited: str = "") -> Target:
    """The record with the settings of `words`. Adds to `shown` what sacctmgr lists under Settings.

    `inherited`: comma-separated QOS that `+=` and `-=` modify if the record has no list. Raises Unknown for unknown
    words, SpritzError for bad values.
    """
    table = QOS if isinstance(record, Qos) else ASSOCIATION
    for word in words:
        name = match(word.key, tuple(table), 3)
        if name is None:
            raise Unknown(word.text)
        field, kind, title = table[name]
        try:
            value = _value(kind, word, getattr(record, field), inherited)
        except SpritzError as error:
            if kind not in _BAD or word.op != "=":
                raise
            shown_as = "FairShare" if kind == "shares" else title
            raise Unknown(word.text, _BAD[kind].format(title=shown_as, value=word.value, word=word.text)) from error
        record = replace(record, **{field: value})
        shown[title] = _shown(kind, word, value)
    return record


def _shown(kind: str, word: Word, value: object) -> str:
    if kind == "minutes" and isinstance(value, int):
        return _duration(value)
    if kind == "seconds" and isinstance(value, int):
        return _duration(value // 60)
    if kind in ("factor", "fraction") and isinstance(value, float):
        return f"{value:.4f}"
    if kind == "preempt mode":
        return word.value.upper()
    if kind == "list" and word.op != "=":
        return ",".join(word.op[0] + item.lstrip("+-") for item in word.values)
    return word.value


def listed(shown: dict[str, str], parent: str = "") -> list[str]:
    """Settings of associations as sacctmgr lists them after `add`. `parent`: the parent account, "" for users."""
    every = {**shown, **({"Parent": parent} if parent else {})}
    lines = []
    for title in sorted(every, key=lambda title: (title == "DefQOS", title)):
        width = 25 if title == "GrpJobsAccrue" else 14
        lines.append(f"  {title:<{width}}= {every[title]}")
    return lines


#: Settings that `add qos` lists, in its order; and its titles where they differ.
_QOS_ORDER = (
    *("Flags", "GraceTime", "GrpJobs", "GrpJobsAccrue", "GrpSubmitJobs", "GrpTRES", "GrpTRESMins", "GrpTRESRunMins"),
    *("GrpWall", "MaxJobsAccruePerAccount", "MaxJobsAccruePerUser", "MaxJobsPA", "MaxJobsPU", "MaxSubmitPA"),
    *("MaxSubmitPU", "MaxTRESPerAccount", "MaxTRESPerJob", "MaxTRESPerNode", "MaxTRESPerUser", "MaxTRESRunMinsPA"),
    *("MaxTRESRunMinsPU", "MinTRESPerJob", "MinPrioThresh", "MaxTRESMinsPerJob", "MaxWall", "Preempt", "PreemptMode"),
    *("PreemptExemptTime", "Priority", "UsageFactor", "UsageThreshold", "LimitFactor"),
)
_QOS_TITLES = {
    "MaxJobsPA": "MaxJobsPerAccount",
    "MaxJobsPU": "MaxJobsPerUser",
    "MaxSubmitPA": "MaxSubmitJobsPerAccount",
    "MaxSubmitPU": "MaxSubmitJobsPerUser",
    "MaxTRESMinsPerJob": "MaxTRESMins",
}


def listed_qos(shown: dict[str, str]) -> list[str]:
    """Settings of a QOS as sacctmgr lists them after `add`. Source: what 22.05 prints."""
    lines = []
    for title in _QOS_ORDER:
        if title in shown:
            # 22.05 pads all titles but this one.
            width = 14 if title == "MaxJobsPU" else 24
            lines.append(f"  {_QOS_TITLES.get(title, title):<{width}} = {shown[title]}")
    return lines


def _duration(minutes: int) -> str:
    return format_minutes(minutes)


def _value(kind: str, word: Word, old: object, inherited: str) -> object:
    text = word.value.strip()
    if kind == "list":
        start = str(old) if old is not None else inherited
        return _listed(start, word) if text != "-1" else None
    if kind == "others":
        return "" if text in ("", "-1") else _listed(str(old), word)
    if kind == "flags":
        return _flags(str(old), word)
    if word.op != "=":
        raise SpritzError(f"{word.key} takes no {word.op}")
    if kind in ("name", "text"):
        return "" if text == "-1" and kind == "name" else text
    if kind == "shares":
        return _shares(text)
    if kind == "minutes":
        return _minutes(text, "MaxWall" if "wall" in word.key else word.key)
    if kind == "seconds":
        return _seconds(word.key, text)
    if kind == "preempt mode":
        return _preempt_mode(text)
    if kind == "number":
        return _count(word.key, text) or 0
    if kind == "count":
        return _count(word.key, text)
    if kind in ("factor", "fraction"):
        factor = _fraction(word.key, text)
        return 1.0 if factor is None and kind == "factor" else factor
    if not text:  # "-1" removes limits; an empty value is an error
        raise Unknown(word.text)
    only = kind.partition(":")[2]
    listed = f"{only}={text}" if only else text
    for item in listed.split(","):
        if item.strip() and "=" not in item:  # a bare `-1` inside a list: `name=-1` removes a limit
            raise Unknown(word.text, f"sacctmgr: error: slurmdb_format_tres_str: no TRES id found for {item.strip()}\n")
    return _tres(listed, str(old))


def _listed(old: str, word: Word) -> str:
    relative = word.op != "=" or any(item[0] in "+-" for item in word.values)
    names = [name for name in old.split(",") if name] if relative else []
    for item in word.values:
        minus = item.startswith("-") or word.op == "-="
        name = item.lstrip("+-").lower()
        if minus:
            names = [kept for kept in names if kept != name]
        elif name not in names:
            names.append(name)
    return ",".join(sorted(names))


def _flags(old: str, word: Word) -> str:
    kept = [name for name in old.split(",") if name] if word.op != "=" else []
    for item in word.values:
        if item == "-1":
            kept = []
            continue
        low = item.lower()
        if low not in FLAGS:
            raise UnknownFlag(word.value)
        kept = [name for name in kept if name != FLAGS[low]]
        if word.op != "-=":
            kept.append(FLAGS[low])
    return ",".join(sorted(kept))


def _shares(text: str) -> int:
    if text.lower() == "parent":
        return SHARES_PARENT
    if text == "-1":
        return 1
    if not text.isascii() or not text.isdigit() or int(text) >= SHARES_PARENT:
        raise SpritzError(f"Bad FairShare value: {text}")
    return int(text)


def _count(key: str, text: str) -> int | None:
    if text == "-1":
        return None
    if not text.isascii() or not text.isdigit() or int(text) >= SHARES_PARENT:
        raise SpritzError(f" Bad {key} value: {text}")
    return int(text)


def _fraction(key: str, text: str) -> float | None:
    if text == "-1":
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1e9:  # refuses NaN too
        raise SpritzError(f" Bad {key} value: {text}")
    return value


def _minutes(text: str, title: str) -> int | None:
    if text == "-1":
        return None
    try:
        minutes = parse_minutes(text)
    except NotationError as error:
        raise SpritzError(f" Bad {title} time format: {text}") from error
    return None if minutes >= INFINITE else minutes


def _seconds(key: str, text: str) -> int | None:
    if text == "-1":
        return None
    try:
        seconds = parse_seconds(text)
    except NotationError as error:
        raise SpritzError(f" Bad {key} time format: {text}") from error
    return None if seconds >= INFINITE else seconds


def _preempt_mode(text: str) -> str:
    """The modes in Slurm's order; "" if the cluster's PreemptMode applies."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in _PREEMPT_MODES:
            raise SpritzError(f"Bad Preempt Mode given: {text}")
    kept = [word for word in dict.fromkeys(words) if word not in ("off", "cluster")]
    if len(set(kept) & {"cancel", "requeue", "suspend"}) > 1:
        raise SpritzError(f"Bad Preempt Mode given: {text}")
    return ",".join(kept)


def _tres(text: str, old: str) -> str:
    merged = dict(tres.parse(old))
    keep = []
    for item in text.split(","):
        name, _, value = item.rpartition("=")
        if value.strip() == "-1":
            merged.pop(name.strip().lower(), None)
        elif item.strip():
            keep.append(item)
    try:
        new = dict(tres.parse(",".join(keep)))
    except NotationError as error:
        raise SpritzError(str(error)) from error
    merged.update(new)
    return tres.format(merged.items(), convert=False)
