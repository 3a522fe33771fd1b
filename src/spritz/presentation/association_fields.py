"""The columns of sacctmgr's lists: names, widths, and what they show of a row.

A row is a dict of what a line is about: `a` an association, `b` its bounds with what it inherits, `u` a user, `c` an
account, `q` a QOS, and plain values by name. Source: sacctmgr(1); headings and widths as 22.05 prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.records import SHARES_PARENT
from spritz.notation import tres
from spritz.notation.duration import format_duration, format_minutes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Row = dict[str, Any]


class Field:
    """One column."""

    __slots__ = ("left", "show", "title", "width")

    def __init__(self, title: str, width: int, show: Callable[[Row], object], *, left: bool = False) -> None:
        self.left = left
        self.title = title
        self.width = width
        self.show = show


def _text(name: str) -> Callable[[Row], object]:
    return lambda row: row.get(name, "")


def _of(part: str, field: str) -> Callable[[Row], object]:
    return lambda row: getattr(row[part], field) if row.get(part) is not None else None


def _minutes(part: str, field: str) -> Callable[[Row], object]:
    def show(row: Row) -> object:
        value = getattr(row[part], field) if row.get(part) is not None else None
        return None if value is None else format_minutes(value)

    return show


def _seconds(part: str, field: str) -> Callable[[Row], object]:
    def show(row: Row) -> object:
        value = getattr(row[part], field)
        return None if value is None else format_duration(value)

    return show


def _tres(part: str, field: str, only: str = "") -> Callable[[Row], object]:
    def show(row: Row) -> object:
        if row.get(part) is None:
            return None
        value = getattr(row[part], field)
        pairs = tres.parse(value) if isinstance(value, str) else value
        if only:
            return dict(pairs).get(only)
        return tres.format(pairs)

    return show


def _number(field: str) -> Callable[[Row], object]:
    def show(row: Row) -> object:
        value = getattr(row["q"], field) if row.get("q") is not None else None
        return None if value is None else f"{value:.6f}"

    return show


def _shares(row: Row) -> object:
    one = row.get("a")
    return None if one is None else "parent" if one.shares == SHARES_PARENT else one.shares


def _qos(row: Row) -> object:
    bounds = row.get("b")
    return None if bounds is None else ",".join(sorted(bounds.qos))


def _qos_numbers(row: Row) -> object:
    bounds, numbers = row.get("b"), row.get("qos_numbers", {})
    return None if bounds is None else ",".join(str(numbers.get(name, 0)) for name in sorted(bounds.qos))


def _account(row: Row) -> object:
    one = row.get("a")
    if one is None:
        return row["c"].name if row.get("c") is not None else ""
    return " " * int(row.get("indent", 0)) + one.account


#: the fields of associations, in the order in which abbreviations are looked for
ASSOCIATION: dict[str, Field] = {
    "cluster": Field("Cluster", 10, _of("a", "cluster")),
    "account": Field("Account", 10, _account),
    "acct": Field("Account", 10, _account),
    "user": Field("User", 10, _of("a", "user")),
    "partition": Field("Partition", 10, _of("a", "partition")),
    "share": Field("Share", 9, _shares),
    "fairshare": Field("Share", 9, _shares),
    "priority": Field("Priority", 10, lambda row: (row.get("b") and row["b"].priority) or None),
    "grpjobs": Field("GrpJobs", 7, _of("a", "grp_jobs")),
    "grpjobsaccrue": Field("GrpJobsAccrue", 13, _of("a", "grp_jobs_accrue")),
    "grpnodes": Field("GrpNodes", 8, _tres("a", "grp_tres", "node")),
    "grpcpus": Field("GrpCPUs", 8, _tres("a", "grp_tres", "cpu")),
    "grpmem": Field("GrpMem", 7, _tres("a", "grp_tres", "mem")),
    "grpmemory": Field("GrpMem", 7, _tres("a", "grp_tres", "mem")),
    "grptres": Field("GrpTRES", 13, _tres("a", "grp_tres")),
    "grpsubmit": Field("GrpSubmit", 9, _of("a", "grp_submit")),
    "grpsubmitjobs": Field("GrpSubmit", 9, _of("a", "grp_submit")),
    "grpwall": Field("GrpWall", 11, _minutes("a", "grp_wall")),
    "grptresmins": Field("GrpTRESMins", 13, _tres("a", "grp_tres_mins")),
    "grpcpumins": Field("GrpCPUMins", 11, _tres("a", "grp_tres_mins", "cpu")),
    "grptresrunmins": Field("GrpTRESRunMins", 13, _tres("a", "grp_tres_run_mins")),
    "grpcpurunmins": Field("GrpCPURunMins", 13, _tres("a", "grp_tres_run_mins", "cpu")),
    "maxjobs": Field("MaxJobs", 7, _of("b", "max_jobs")),
    "maxjobsaccrue": Field("MaxJobsAccrue", 13, _of("b", "max_accrue")),
    "maxnodes": Field("MaxNodes", 8, _tres("b", "per_job", "node")),
    "maxcpus": Field("MaxCPUs", 8, _tres("b", "per_job", "cpu")),
    "maxtres": Field("MaxTRES", 13, _tres("b", "per_job")),
    "maxtresperjob": Field("MaxTRES", 13, _tres("b", "per_job")),
    "maxtrespernode": Field("MaxTRESPerNode", 14, _tres("b", "per_node")),
    "maxsubmit": Field("MaxSubmit", 9, _of("b", "max_submit")),
    "maxsubmitjobs": Field("MaxSubmit", 9, _of("b", "max_submit")),
    "maxwall": Field("MaxWall", 11, _minutes("b", "max_wall")),
    "maxtresmins": Field("MaxTRESMins", 13, _tres("b", "mins_per_job")),
    "minpriothreshold": Field("MinPrioThres", 12, _of("b", "min_prio_threshold")),
    "maxcpumins": Field("MaxCPUMins", 11, _tres("b", "mins_per_job", "cpu")),
    "maxcpuminsperjob": Field("MaxCPUMins", 11, _tres("b", "mins_per_job", "cpu")),
    "qos": Field("QOS", 20, _qos),
    "qoslevel": Field("QOS", 20, _qos),
    "qosraw": Field("QOS_RAW", 10, _qos_numbers),
    "qosrawlevel": Field("QOS_RAW", 10, _qos_numbers),
    "defaultqos": Field("Def QOS", 9, _of("b", "default_qos")),
    "defqos": Field("Def QOS", 9, _of("b", "default_qos")),
    "guarantee": Field("Guarantee", 20, _tres("a", "guarantee")),
    "reclaimafter": Field("ReclaimAfter", 12, _minutes("a", "reclaim_after")),
    "parentname": Field("ParentName", 10, _of("a", "parent")),
    "parentid": Field("ParentID", 8, _text("parent_id")),
    "id": Field("ID", 6, _of("a", "id")),
}
ACCOUNT: dict[str, Field] = {
    "account": Field("Account", 10, _of("c", "name")),
    "name": Field("Name", 10, _of("c", "name")),
    "description": Field("Descr", 20, _of("c", "description")),
    "organization": Field("Org", 20, _of("c", "organization")),
    "coordinators": Field("Coord Accounts", 20, _text("coordinators")),
    **ASSOCIATION,
} | {"account": Field("Account", 10, _of("c", "name"))}
USER: dict[str, Field] = {
    "user": Field("User", 10, _of("u", "name")),
    "name": Field("Name", 10, _of("u", "name")),
    "defaultaccount": Field("Def Acct", 10, _text("default_account")),
    "defacct": Field("Def Acct", 10, _text("default_account")),
    "defaultwckey": Field("Def WCKey", 10, _of("u", "default_wckey")),
    "adminlevel": Field("Admin", 9, _of("u", "admin")),
    "coordinators": Field("Coord Accounts", 20, _text("coordinators")),
    **{name: field for name, field in ASSOCIATION.items() if name != "user"},
}
QOS: dict[str, Field] = {
    "name": Field("Name", 10, _of("q", "name")),
    "priority": Field("Priority", 10, _of("q", "priority")),
    "gracetime": Field("GraceTime", 10, _seconds("q", "grace_seconds")),
    "preempt": Field("Preempt", 10, _of("q", "preempt")),
    "preemptexempttime": Field("PreemptExemptTime", 19, _seconds("q", "preempt_exempt_seconds")),
    "preemptmode": Field("PreemptMode", 11, lambda row: row["q"].preempt_mode or "cluster"),
    "flags": Field("Flags", 40, _of("q", "flags")),
    "usagethres": Field("UsageThres", 10, _number("usage_threshold")),
    "usagethreshold": Field("UsageThres", 10, _number("usage_threshold")),
    "usagefactor": Field("UsageFactor", 11, _number("usage_factor")),
    "limitfactor": Field("LimitFactor", 11, _number("limit_factor")),
    "minpriothreshold": Field("MinPrioThres", 12, _of("q", "min_prio_threshold")),
    "maxtresrunminsperuser": Field("MaxTRESRunMinsPU", 15, _tres("q", "max_tres_run_mins_pu")),
    "maxtresrunminspu": Field("MaxTRESRunMinsPU", 15, _tres("q", "max_tres_run_mins_pu")),
    "maxtresrunminsperaccount": Field("MaxTRESRunMinsPA", 15, _tres("q", "max_tres_run_mins_pa")),
    "maxtresrunminspa": Field("MaxTRESRunMinsPA", 15, _tres("q", "max_tres_run_mins_pa")),
    "grptres": Field("GrpTRES", 13, _tres("q", "grp_tres")),
    "grptresmins": Field("GrpTRESMins", 13, _tres("q", "grp_tres_mins")),
    "grptresrunmins": Field("GrpTRESRunMins", 13, _tres("q", "grp_tres_run_mins")),
    "grpjobs": Field("GrpJobs", 7, _of("q", "grp_jobs")),
    "grpjobsaccrue": Field("GrpJobsAccrue", 13, _of("q", "grp_jobs_accrue")),
    "grpsubmit": Field("GrpSubmit", 9, _of("q", "grp_submit")),
    "grpwall": Field("GrpWall", 11, _minutes("q", "grp_wall")),
    "maxtres": Field("MaxTRES", 13, _tres("q", "max_tres_pj")),
    "maxtrespernode": Field("MaxTRESPerNode", 14, _tres("q", "max_tres_pn")),
    "maxtresmins": Field("MaxTRESMins", 13, _tres("q", "max_tres_mins_pj")),
    "maxwall": Field("MaxWall", 11, _minutes("q", "max_wall")),
    "maxtrespu": Field("MaxTRESPU", 13, _tres("q", "max_tres_pu")),
    "maxtresperuser": Field("MaxTRESPU", 13, _tres("q", "max_tres_pu")),
    "maxcpusperuser": Field("MaxCPUsPU", 9, _tres("q", "max_tres_pu", "cpu")),
    "maxnodesperuser": Field("MaxNodesPU", 10, _tres("q", "max_tres_pu", "node")),
    "maxjobspu": Field("MaxJobsPU", 9, _of("q", "max_jobs_pu")),
    "maxjobsperuser": Field("MaxJobsPU", 9, _of("q", "max_jobs_pu")),
    "maxjobsaccruepu": Field("MaxJobsAccruePU", 15, _of("q", "max_jobs_accrue_pu")),
    "maxjobsaccrueperuser": Field("MaxJobsAccruePU", 15, _of("q", "max_jobs_accrue_pu")),
    "maxsubmitpu": Field("MaxSubmitPU", 11, _of("q", "max_submit_pu")),
    "maxsubmitjobsperuser": Field("MaxSubmitPU", 11, _of("q", "max_submit_pu")),
    "maxtrespa": Field("MaxTRESPA", 13, _tres("q", "max_tres_pa")),
    "maxtresperaccount": Field("MaxTRESPA", 13, _tres("q", "max_tres_pa")),
    "maxjobspa": Field("MaxJobsPA", 9, _of("q", "max_jobs_pa")),
    "maxjobsperaccount": Field("MaxJobsPA", 9, _of("q", "max_jobs_pa")),
    "maxjobsaccruepa": Field("MaxJobsAccruePA", 15, _of("q", "max_jobs_accrue_pa")),
    "maxjobsaccrueperaccount": Field("MaxJobsAccruePA", 15, _of("q", "max_jobs_accrue_pa")),
    "maxsubmitpa": Field("MaxSubmitPA", 11, _of("q", "max_submit_pa")),
    "maxsubmitjobsperaccount": Field("MaxSubmitPA", 11, _of("q", "max_submit_pa")),
    "mincpus": Field("MinCPUs", 8, _tres("q", "min_tres_pj", "cpu")),
    "mintres": Field("MinTRES", 13, _tres("q", "min_tres_pj")),
    "mintresperjob": Field("MinTRES", 13, _tres("q", "min_tres_pj")),
    "description": Field("Descr", 20, _of("q", "description")),
    "id": Field("ID", 6, _of("q", "id")),
}
CLUSTER: dict[str, Field] = {
    "cluster": Field("Cluster", 10, _of("k", "name")),
    "name": Field("Name", 10, _of("k", "name")),
    "controlhost": Field("ControlHost", 15, _of("k", "host")),
    "controlport": Field("ControlPort", 12, _of("k", "port")),
    "rpc": Field("RPC", 5, _text("rpc")),
    "nodecount": Field("NodeCount", 9, _text("node_count")),
    "clusternodes": Field("Cluster Nodes", 20, _text("nodes")),
    "tres": Field("TRES", 20, _text("tres")),
    **{name: field for name, field in ASSOCIATION.items() if name != "cluster"},
}
PLAIN: dict[str, dict[str, Field]] = {
    "wckey": {
        "wckey": Field("WCKey", 10, _of("w", "name")),
        "name": Field("WCKey", 10, _of("w", "name")),
        "cluster": Field("Cluster", 10, _of("w", "cluster")),
        "user": Field("User", 10, _of("w", "user")),
        "id": Field("ID", 6, _of("w", "id")),
    },
    "tres": {
        "type": Field("Type", 8, _text("type")),
        "name": Field("Name", 15, _text("name")),
        "id": Field("ID", 6, _text("id")),
        "count": Field("Count", 6, _text("count")),
    },
    "transaction": {
        "time": Field("Time", 19, _text("time")),
        "action": Field("Action", 20, _of("t", "action")),
        "actor": Field("Actor", 10, _of("t", "actor")),
        "where": Field("Where", 20, _of("t", "where")),
        "info": Field("Info", 20, _of("t", "info")),
    },
    "resource": {
        "name": Field("Name", 10, _of("resource", "name")),
        "server": Field("Server", 10, _of("resource", "server")),
        "type": Field("Type", 8, lambda row: "License"),
        "count": Field("Count", 6, _of("resource", "count")),
        "allocated": Field("% Allocated", 11, _text("allocated")),
        "servertype": Field("ServerType", 10, _of("resource", "server_type")),
        "cluster": Field("Cluster", 10, _of("share", "cluster")),
        "percentallowed": Field("% Allowed", 10, _of("share", "percent")),
        "allowed": Field("% Allowed", 10, _of("share", "percent")),
        "descriptions": Field("Descr", 20, _of("resource", "description")),
        "flags": Field("Flags", 8, lambda row: None),
    },
    # There are none: adding one is refused.
    "federation": {
        "federation": Field("Federation", 10, lambda row: None),
        "cluster": Field("Cluster", 10, lambda row: None),
        "id": Field("ID", 2, lambda row: None),
        "features": Field("Features", 20, lambda row: None),
        "fedstate": Field("FedState", 12, lambda row: None),
    },
    "problem": {
        "cluster": Field("Cluster", 10, _text("cluster")),
        "account": Field("Account", 10, _text("account")),
        "user": Field("User", 10, _text("user")),
        "problem": Field("Problem", 40, _text("problem")),
    },
}
_ASSOC_LIMITS = "share,priority,grpjobs,grpnodes,grpcpus,grpmem,grpsubmit,grpwall,grpcpumins"
_USER_LIMITS = "maxjobs,maxnodes,maxcpus,maxsubmit,maxwall,maxcpumins,qos,defaultqos"
#: entity -> (table, what is shown unless format= says otherwise)
DEFAULTS: dict[str, tuple[dict[str, Field], str]] = {
    "association": (
        ASSOCIATION,
        "cluster,account,user,partition,share,priority,grpjobs,grptres,grpsubmit,grpwall,grptresmins,maxjobs,maxtres,"
        "maxtrespernode,maxsubmit,maxwall,maxtresmins,qos,defaultqos,grptresrunmins",
    ),
    "account": (ACCOUNT, "account,description,organization"),
    "account withassoc": (
        ACCOUNT,
        f"account,description,organization,cluster,parentname,user,{_ASSOC_LIMITS},{_USER_LIMITS}",
    ),
    "user": (USER, "user,defaultaccount,adminlevel"),
    "user withassoc": (
        USER,
        f"user,defaultaccount,adminlevel,cluster,account,partition,share,priority,{_USER_LIMITS}",
    ),
    "qos": (
        QOS,
        "name,priority,gracetime,preempt,preemptexempttime,preemptmode,flags,usagethres,usagefactor,grptres,"
        "grptresmins,grptresrunmins,grpjobs,grpsubmit,grpwall,maxtres,maxtrespernode,maxtresmins,maxwall,maxtrespu,"
        "maxjobspu,maxsubmitpu,maxtrespa,maxjobspa,maxsubmitpa,mintres",
    ),
    "cluster": (
        CLUSTER,
        "cluster,controlhost,controlport,rpc,share,grpjobs,grptres,grpsubmit,maxjobs,maxtres,maxsubmit,maxwall,qos,"
        "defaultqos",
    ),
    "wckey": (PLAIN["wckey"], "wckey,cluster,user"),
    "tres": (PLAIN["tres"], "type,name,id"),
    "resource": (PLAIN["resource"], "name,server,type,count,allocated,servertype"),
    "resource withclusters": (
        PLAIN["resource"],
        "name,server,type,count,allocated,servertype,cluster,percentallowed",
    ),
    "transaction": (PLAIN["transaction"], "time,action,actor,where,info"),
    "problem": (PLAIN["problem"], "cluster,account,user,problem"),
    "federation": (PLAIN["federation"], "federation,cluster,id,features,fedstate"),
}
