"""`scontrol show assoc_mgr` from the core's own rules and ledger, as 22.05 printed the same associations and jobs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spritz.cli.administration.control.show.assoc_mgr import text
from spritz.controller.api.limit_usage import standings
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.limits.records import Association, Policy, Qos, SetPolicy
from spritz.model.limits.standing import KINDS, ListStandings
from spritz.model.limits.usage import RAW
from spritz.scheduling.view.priority.fairshare import fair_shares
from spritz_testing.builders import World, capacity

TRES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")
ASSOCIATIONS = (
    Association(id=1, cluster="real", account="root"),
    Association(
        id=3, cluster="real", account="chem", parent="root", grp_tres="cpu=7,mem=102400", grp_tres_mins="cpu=1000",
        grp_jobs=3, grp_wall=500, max_tres_per_node="cpu=2", priority=5, min_prio_threshold=4, qos="normal,fast",
    ),
    Association(
        id=5, cluster="real", account="chem", user="alice", is_default=True, max_jobs=5, max_submit=10, max_wall=60,
        max_tres="cpu=4",
    ),
)  # fmt: skip
FAST = Qos(
    name="fast", id=2, priority=10, grp_jobs=9, max_tres_pu="cpu=3", max_jobs_pu=2, min_tres_pj="cpu=1", max_wall=30,
    preempt="normal", max_tres_pa="cpu=5", grp_tres_mins="cpu=77", max_tres_mins_pj="cpu=9",
)  # fmt: skip
EMPTY = "cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0)"
CHEM = """\
ClusterName=cluster Account=chem UserName= Partition= Priority=5 ID=3
    SharesRaw/Norm/Level/Factor=1/1.00/1/0.00
    UsageRaw/Norm/Efctv=0.00/0.00/0.00
    ParentAccount=root(1) Lft=2 DefAssoc=No
    GrpJobs=3(1) GrpJobsAccrue=N(1)
    GrpSubmitJobs=N(2) GrpWall=500(0.00)
    GrpTRES=cpu=7(2),mem=102400(0),energy=N(0),node=N(1),billing=N(2),fs/disk=N(0),vmem=N(0),pages=N(0)
    GrpTRESMins=cpu=1000(0),mem=N(0),energy=N(0),node=N(0),billing=N(0),fs/disk=N(0),vmem=N(0),pages=N(0)
    GrpTRESRunMins=cpu=N(8),mem=N(0),energy=N(0),node=N(4),billing=N(8),fs/disk=N(0),vmem=N(0),pages=N(0)
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
    MaxTRESPJ=
    MaxTRESPN=cpu=2
    MaxTRESMinsPJ=
    MinPrioThresh=4
"""
USED_BY_ONE = "cpu=3(2),mem=N(0),energy=N(0),node=N(1),billing=N(2),fs/disk=N(0),vmem=N(0),pages=N(0)"
FAST_TEXT = f"""\
QOS=fast(2)
    UsageRaw=0.000000
    GrpJobs=9(1) GrpJobsAccrue=N(0) GrpSubmitJobs=N(1) GrpWall=N(0.00)
    GrpTRES={USED_BY_ONE.replace("cpu=3", "cpu=N")}
    GrpTRESMins={EMPTY.replace("cpu=N", "cpu=77")}
    GrpTRESRunMins=cpu=N(8),mem=N(0),energy=N(0),node=N(4),billing=N(8),fs/disk=N(0),vmem=N(0),pages=N(0)
    MaxWallPJ=30
    MaxTRESPJ=
    MaxTRESPN=
    MaxTRESMinsPJ=cpu=9
    MinPrioThresh= 
    MinTRESPJ=cpu=1
    PreemptMode=OFF
    Priority=10
    Account Limits
      chem
        MaxJobsPA=N(1) MaxJobsAccruePA=N(0) MaxSubmitJobsPA=N(1)
        MaxTRESPA={USED_BY_ONE.replace("cpu=3", "cpu=5")}
    User Limits
      1000
        MaxJobsPU=2(1) MaxJobsAccruePU=N(0) MaxSubmitJobsPU=N(1)
        MaxTRESPU={USED_BY_ONE}
"""  # noqa: W291


def shown(made: World, *, oneliner: bool = False, kinds: tuple[str, ...] = KINDS, **wanted: tuple[str, ...]) -> str:
    state = made.state
    usage = {
        association.id: state.usage.amount(("a", association.id), RAW, made.now)
        for association in state.rules.policy.associations
    }
    shares = fair_shares(state.rules.policy.associations, usage, state.settings.priority_policy)
    found = standings(state, shares, ListStandings(kinds=kinds, **wanted), made.now, TRES)
    return text(found, kinds, oneliner=oneliner)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> World:
    """Alice runs a job of two CPUs for four minutes in QOS fast, and waits with another in normal."""
    uids = {"alice": 1000}
    monkeypatch.setattr("pwd.getpwnam", lambda name: SimpleNamespace(pw_uid=uids[name]))
    made = World(settings=ClusterSettings(enforce=("associations",)), hardware=capacity(cpus=8))
    made.ok(SetPolicy(policy=Policy(version=1, associations=ASSOCIATIONS, qos=(Qos(name="normal", id=1), FAST))))
    made.start(made.submit(qos="fast", time_limit_minutes=4), cpus=2)
    made.submit(qos="normal")
    return made


def test_records_as_slurm_lays_them_out(made: World) -> None:
    everything = shown(made)
    head = "Current Association Manager state\n\nUser Records\n\n"
    assert everything.startswith(
        head + "UserName=alice(1000) DefAccount=chem DefWckey= AdminLevel=None\n\nAssociation Records\n\n"
    )
    assert CHEM in everything
    assert "MaxJobs=5(1) MaxJobsAccrue= MaxSubmitJobs=10(2) MaxWallPJ=60\n    MaxTRESPJ=cpu=4\n" in everything
    assert "\n\nQOS Records\n\nQOS=normal(1)\n" in everything
    assert everything.endswith(FAST_TEXT)


def test_one_line_a_record(made: World) -> None:
    lines = shown(made, oneliner=True, kinds=("qos",), qos=("fast",)).splitlines()
    assert lines[:2] == ["Current Association Manager state", "QOS Records"]
    assert len(lines) == 3
    assert lines[2].endswith(f"}} User Limits= 1000={{MaxJobsPU=2(1) MaxJobsAccruePU=N(0) MaxSubmitJobsPU=N(1) "
                             f"MaxTRESPU={USED_BY_ONE}}}")  # fmt: skip


def test_filters_choose_users_accounts_and_qos(made: World) -> None:
    nobody = shown(made, users=("zoe",), qos=("none",))
    assert "\nNo users currently cached in Slurm.\n\n" in nobody
    assert "\nNo QOS currently cached in Slurm.\n\n" in nobody
    assert "Account=chem UserName= " in nobody, "accounts have no user"
    assert "UserName=alice" not in nobody
    assert " Account=root " not in shown(made, kinds=("assoc",), accounts=("chem",))


def test_users_without_usage_are_not_listed_under_a_qos(made: World) -> None:
    made.cancel(*made.state.jobs)
    text = shown(made, kinds=("qos",), qos=("fast",))
    assert text.endswith("    Account Limits\n        No Accounts\n    User Limits\n        No Users\n")
