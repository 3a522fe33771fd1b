"""The catalogues of sacctmgr's fields: name, width, and value for a row.

A row is a dict of the records for a line: `a` an association, `b` its limits including inherited ones, `u` a user, `c`
an account, `q` a QOS, and plain values by name. Source: sacctmgr(1); headings and widths as 22.05 prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.federations import RAW_STATES
from spritz.model.limits.records import SHARES_PARENT
from spritz.notation import tres
from spritz.notation.duration import format_duration, format_minutes
from spritz.presentation.table import TableField

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Row = dict[str, Any]


def _text(name: str) -> Callable[[Row], object]:
    return lambda row: row.get(name, "")


def _of(part: str, field: str) -> Callable[[Row], object]:
    return lambda row: getattr(row[part], field) if row.get(part) is not None else None


def _federation_state(row: Row) -> object:
    """The cluster's state in its federation; NA without one."""
    return (row["member"].state or "NA") if "member" in row else None


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
    association = row.get("a")
    return None if association is None else "parent" if association.shares == SHARES_PARENT else association.shares


def _qos(row: Row) -> object:
    bounds = row.get("b")
    return None if bounds is None else ",".join(sorted(bounds.qos))


def _qos_numbers(row: Row) -> object:
    bounds, numbers = row.get("b"), row.get("qos_numbers", {})
    return None if bounds is None else ",".join(str(numbers.get(name, 0)) for name in sorted(bounds.qos))


def _account(row: Row) -> object:
    association = row.get("a")
    if association is None:
        return row["c"].name if row.get("c") is not None else ""
    return " " * int(row.get("indent", 0)) + association.account


#: fields of associations, in the order in which abbreviations are matched
ASSOCIATION: dict[str, TableField] = {
    "cluster": TableField("Cluster", 10, _of("a", "cluster")),
    "account": TableField("Account", 10, _account),
    "acct": TableField("Account", 10, _account),
    "user": TableField("User", 10, _of("a", "user")),
    "partition": TableField("Partition", 10, _of("a", "partition")),
    "share": TableField("Share", 9, _shares),
    "fairshare": TableField("Share", 9, _shares),
    "priority": TableField("Priority", 10, lambda row: (row.get("b") and row["b"].priority) or None),
    "grpjobs": TableField("GrpJobs", 7, _of("a", "grp_jobs")),
    "grpjobsaccrue": TableField("GrpJobsAccrue", 13, _of("a", "grp_jobs_accrue")),
    "grpnodes": TableField("GrpNodes", 8, _tres("a", "grp_tres", "node")),
    "grpcpus": TableField("GrpCPUs", 8, _tres("a", "grp_tres", "cpu")),
    "grpmem": TableField("GrpMem", 7, _tres("a", "grp_tres", "mem")),
    "grpmemory": TableField("GrpMem", 7, _tres("a", "grp_tres", "mem")),
    "grptres": TableField("GrpTRES", 13, _tres("a", "grp_tres")),
    "grpsubmit": TableField("GrpSubmit", 9, _of("a", "grp_submit")),
    "grpsubmitjobs": TableField("GrpSubmit", 9, _of("a", "grp_submit")),
    "grpwall": TableField("GrpWall", 11, _minutes("a", "grp_wall")),
    "grptresmins": TableField("GrpTRESMins", 13, _tres("a", "grp_tres_mins")),
    "grpcpumins": TableField("GrpCPUMins", 11, _tres("a", "grp_tres_mins", "cpu")),
    "grptresrunmins": TableField("GrpTRESRunMins", 13, _tres("a", "grp_tres_run_mins")),
    "grpcpurunmins": TableField("GrpCPURunMins", 13, _tres("a", "grp_tres_run_mins", "cpu")),
    "maxjobs": TableField("MaxJobs", 7, _of("b", "max_jobs")),
    "maxjobsaccrue": TableField("MaxJobsAccrue", 13, _of("b", "max_accrue")),
    "maxnodes": TableField("MaxNodes", 8, _tres("b", "per_job", "node")),
    "maxcpus": TableField("MaxCPUs", 8, _tres("b", "per_job", "cpu")),
    "maxtres": TableField("MaxTRES", 13, _tres("b", "per_job")),
    "maxtresperjob": TableField("MaxTRES", 13, _tres("b", "per_job")),
    "maxtrespernode": TableField("MaxTRESPerNode", 14, _tres("b", "per_node")),
    "maxsubmit": TableField("MaxSubmit", 9, _of("b", "max_submit")),
    "maxsubmitjobs": TableField("MaxSubmit", 9, _of("b", "max_submit")),
    "maxwall": TableField("MaxWall", 11, _minutes("b", "max_wall")),
    "maxtresmins": TableField("MaxTRESMins", 13, _tres("b", "mins_per_job")),
    "minpriothreshold": TableField("MinPrioThres", 12, _of("b", "min_prio_threshold")),
    "maxcpumins": TableField("MaxCPUMins", 11, _tres("b", "mins_per_job", "cpu")),
    "maxcpuminsperjob": TableField("MaxCPUMins", 11, _tres("b", "mins_per_job", "cpu")),
    "qos": TableField("QOS", 20, _qos),
    "qoslevel": TableField("QOS", 20, _qos),
    "qosraw": TableField("QOS_RAW", 10, _qos_numbers),
    "qosrawlevel": TableField("QOS_RAW", 10, _qos_numbers),
    "defaultqos": TableField("Def QOS", 9, _of("b", "default_qos")),
    "defqos": TableField("Def QOS", 9, _of("b", "default_qos")),
    "guarantee": TableField("Guarantee", 20, _tres("a", "guarantee")),
    "reclaimafter": TableField("ReclaimAfter", 12, _minutes("a", "reclaim_after")),
    "parentname": TableField("ParentName", 10, _of("a", "parent")),
    "parentid": TableField("ParentID", 8, _text("parent_id")),
    "id": TableField("ID", 6, _of("a", "id")),
}
ACCOUNT: dict[str, TableField] = {
    "account": TableField("Account", 10, _of("c", "name")),
    "name": TableField("Name", 10, _of("c", "name")),
    "description": TableField("Descr", 20, _of("c", "description")),
    "organization": TableField("Org", 20, _of("c", "organization")),
    "coordinators": TableField("Coord Accounts", 20, _text("coordinators")),
    **ASSOCIATION,
} | {"account": TableField("Account", 10, _of("c", "name"))}
USER: dict[str, TableField] = {
    "user": TableField("User", 10, _of("u", "name")),
    "name": TableField("Name", 10, _of("u", "name")),
    "defaultaccount": TableField("Def Acct", 10, _text("default_account")),
    "defacct": TableField("Def Acct", 10, _text("default_account")),
    "defaultwckey": TableField("Def WCKey", 10, _of("u", "default_wckey")),
    "adminlevel": TableField("Admin", 9, _of("u", "admin")),
    "coordinators": TableField("Coord Accounts", 20, _text("coordinators")),
    **{name: field for name, field in ASSOCIATION.items() if name != "user"},
}
QOS: dict[str, TableField] = {
    "name": TableField("Name", 10, _of("q", "name")),
    "priority": TableField("Priority", 10, _of("q", "priority")),
    "gracetime": TableField("GraceTime", 10, _seconds("q", "grace_seconds")),
    "preempt": TableField("Preempt", 10, _of("q", "preempt")),
    "preemptexempttime": TableField("PreemptExemptTime", 19, _seconds("q", "preempt_exempt_seconds")),
    "preemptmode": TableField("PreemptMode", 11, lambda row: row["q"].preempt_mode or "cluster"),
    "flags": TableField("Flags", 40, _of("q", "flags")),
    "usagethres": TableField("UsageThres", 10, _number("usage_threshold")),
    "usagethreshold": TableField("UsageThres", 10, _number("usage_threshold")),
    "usagefactor": TableField("UsageFactor", 11, _number("usage_factor")),
    "limitfactor": TableField("LimitFactor", 11, _number("limit_factor")),
    "minpriothreshold": TableField("MinPrioThres", 12, _of("q", "min_prio_threshold")),
    "maxtresrunminsperuser": TableField("MaxTRESRunMinsPU", 15, _tres("q", "max_tres_run_mins_pu")),
    "maxtresrunminspu": TableField("MaxTRESRunMinsPU", 15, _tres("q", "max_tres_run_mins_pu")),
    "maxtresrunminsperaccount": TableField("MaxTRESRunMinsPA", 15, _tres("q", "max_tres_run_mins_pa")),
    "maxtresrunminspa": TableField("MaxTRESRunMinsPA", 15, _tres("q", "max_tres_run_mins_pa")),
    "grptres": TableField("GrpTRES", 13, _tres("q", "grp_tres")),
    "grptresmins": TableField("GrpTRESMins", 13, _tres("q", "grp_tres_mins")),
    "grptresrunmins": TableField("GrpTRESRunMins", 13, _tres("q", "grp_tres_run_mins")),
    "grpjobs": TableField("GrpJobs", 7, _of("q", "grp_jobs")),
    "grpjobsaccrue": TableField("GrpJobsAccrue", 13, _of("q", "grp_jobs_accrue")),
    "grpsubmit": TableField("GrpSubmit", 9, _of("q", "grp_submit")),
    "grpwall": TableField("GrpWall", 11, _minutes("q", "grp_wall")),
    "maxtres": TableField("MaxTRES", 13, _tres("q", "max_tres_pj")),
    "maxtrespernode": TableField("MaxTRESPerNode", 14, _tres("q", "max_tres_pn")),
    "maxtresmins": TableField("MaxTRESMins", 13, _tres("q", "max_tres_mins_pj")),
    "maxwall": TableField("MaxWall", 11, _minutes("q", "max_wall")),
    "maxtrespu": TableField("MaxTRESPU", 13, _tres("q", "max_tres_pu")),
    "maxtresperuser": TableField("MaxTRESPU", 13, _tres("q", "max_tres_pu")),
    "maxcpusperuser": TableField("MaxCPUsPU", 9, _tres("q", "max_tres_pu", "cpu")),
    "maxnodesperuser": TableField("MaxNodesPU", 10, _tres("q", "max_tres_pu", "node")),
    "maxjobspu": TableField("MaxJobsPU", 9, _of("q", "max_jobs_pu")),
    "maxjobsperuser": TableField("MaxJobsPU", 9, _of("q", "max_jobs_pu")),
    "maxjobsaccruepu": TableField("MaxJobsAccruePU", 15, _of("q", "max_jobs_accrue_pu")),
    "maxjobsaccrueperuser": TableField("MaxJobsAccruePU", 15, _of("q", "max_jobs_accrue_pu")),
    "maxsubmitpu": TableField("MaxSubmitPU", 11, _of("q", "max_submit_pu")),
    "maxsubmitjobsperuser": TableField("MaxSubmitPU", 11, _of("q", "max_submit_pu")),
    "maxtrespa": TableField("MaxTRESPA", 13, _tres("q", "max_tres_pa")),
    "maxtresperaccount": TableField("MaxTRESPA", 13, _tres("q", "max_tres_pa")),
    "maxjobspa": TableField("MaxJobsPA", 9, _of("q", "max_jobs_pa")),
    "maxjobsperaccount": TableField("MaxJobsPA", 9, _of("q", "max_jobs_pa")),
    "maxjobsaccruepa": TableField("MaxJobsAccruePA", 15, _of("q", "max_jobs_accrue_pa")),
    "maxjobsaccrueperaccount": TableField("MaxJobsAccruePA", 15, _of("q", "max_jobs_accrue_pa")),
    "maxsubmitpa": TableField("MaxSubmitPA", 11, _of("q", "max_submit_pa")),
    "maxsubmitjobsperaccount": TableField("MaxSubmitPA", 11, _of("q", "max_submit_pa")),
    "mincpus": TableField("MinCPUs", 8, _tres("q", "min_tres_pj", "cpu")),
    "mintres": TableField("MinTRES", 13, _tres("q", "min_tres_pj")),
    "mintresperjob": TableField("MinTRES", 13, _tres("q", "min_tres_pj")),
    "description": TableField("Descr", 20, _of("q", "description")),
    "id": TableField("ID", 6, _of("q", "id")),
}
CLUSTER: dict[str, TableField] = {
    "cluster": TableField("Cluster", 10, _of("k", "name")),
    "name": TableField("Name", 10, _of("k", "name")),
    "controlhost": TableField("ControlHost", 15, _of("k", "host")),
    "controlport": TableField("ControlPort", 12, _of("k", "port")),
    "rpc": TableField("RPC", 5, _text("rpc")),
    "nodecount": TableField("NodeCount", 9, _text("node_count")),
    "clusternodes": TableField("Cluster Nodes", 20, _text("nodes")),
    "tres": TableField("TRES", 20, _text("tres")),
    "federation": TableField("Federation", 10, _of("member", "federation")),
    "id": TableField("ID", 6, _of("member", "number")),
    "features": TableField("Features", 20, _of("member", "features")),
    "fedstate": TableField("FedState", 12, _federation_state),
    "fedstateraw": TableField("FedStateRaw", 11, lambda row: str(RAW_STATES[row["member"].state])),
    **{name: field for name, field in ASSOCIATION.items() if name not in ("cluster", "id")},
}
PLAIN: dict[str, dict[str, TableField]] = {
    "wckey": {
        "wckey": TableField("WCKey", 10, _of("w", "name")),
        "name": TableField("WCKey", 10, _of("w", "name")),
        "cluster": TableField("Cluster", 10, _of("w", "cluster")),
        "user": TableField("User", 10, _of("w", "user")),
        "id": TableField("ID", 6, _of("w", "id")),
    },
    "tres": {
        "type": TableField("Type", 8, _text("type")),
        "name": TableField("Name", 15, _text("name")),
        "id": TableField("ID", 6, _text("id")),
        "count": TableField("Count", 6, _text("count")),
    },
    "transaction": {
        "time": TableField("Time", 19, _text("time")),
        "action": TableField("Action", 20, _of("t", "action")),
        "actor": TableField("Actor", 10, _of("t", "actor")),
        "where": TableField("Where", 20, _of("t", "where")),
        "info": TableField("Info", 20, _of("t", "info")),
    },
    "resource": {
        "name": TableField("Name", 10, _of("resource", "name")),
        "server": TableField("Server", 10, _of("resource", "server")),
        "type": TableField("Type", 8, lambda row: "License"),
        "count": TableField("Count", 6, _of("resource", "count")),
        "allocated": TableField("% Allocated", 11, _text("allocated")),
        "servertype": TableField("ServerType", 10, _of("resource", "server_type")),
        "cluster": TableField("Cluster", 10, _of("share", "cluster")),
        "percentallowed": TableField("% Allowed", 10, _of("share", "percent")),
        "allowed": TableField("% Allowed", 10, _of("share", "percent")),
        "descriptions": TableField("Descr", 20, _of("resource", "description")),
        "flags": TableField("Flags", 8, lambda row: None),
    },
    "federation": {
        "federation": TableField("Federation", 10, _text("federation")),
        "cluster": TableField("Cluster", 10, _of("member", "cluster")),
        "id": TableField("ID", 2, _of("member", "number")),
        "features": TableField("Features", 20, _of("member", "features")),
        "fedstate": TableField("FedState", 12, lambda row: row["member"].state if "member" in row else None),
        "fedstateraw": TableField(
            "FedStateRaw", 11, lambda row: str(RAW_STATES[row["member"].state]) if "member" in row else None
        ),
    },
    "problem": {
        "cluster": TableField("Cluster", 10, _text("cluster")),
        "account": TableField("Account", 10, _text("account")),
        "user": TableField("User", 10, _text("user")),
        "problem": TableField("Problem", 40, _text("problem")),
    },
}
_ASSOC_LIMITS = "share,priority,grpjobs,grpnodes,grpcpus,grpmem,grpsubmit,grpwall,grpcpumins"
_USER_LIMITS = "maxjobs,maxnodes,maxcpus,maxsubmit,maxwall,maxcpumins,qos,defaultqos"
#: entity -> (table, default fields)
DEFAULTS: dict[str, tuple[dict[str, TableField], str]] = {
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
