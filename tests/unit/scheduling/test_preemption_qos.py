"""Preemption by QOS: which jobs may preempt which, how, from when on; and a job that preempts goes first.

Source: slurm.conf(5) PreemptType=preempt/qos, PreemptMode=WITHIN, PreemptExemptTime; sacctmgr(1) Preempt, PreemptMode,
PreemptExemptTime, GraceTime.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.commands.job import CancelJobs, HoldJob
from spritz.model.events.cluster import PolicyChanged
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Sharing
from spritz.model.limits.records import Association, Policy, Qos
from spritz.model.node_daemon.reports import JobGone
from spritz.scheduling.plan.preemption.rules import PreemptionRules
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec
from tests.unit.scheduling.test_preemption import leave, run, states, tick, victims

ACCOUNTS = (
    Association(id=1, cluster="c", account="root"),
    Association(id=2, cluster="c", account="lab", parent="root"),
    Association(id=3, cluster="c", account="lab", user="ann"),
)


def site(
    mode: str = "REQUEUE",
    *,
    nodes: int = 1,
    home: dict[str, Any] | None = None,
    qos: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    **policy: Any,
) -> Site:
    """Jobs of the QOS high may preempt those of low. `qos`: more fields, by `name__field`."""
    configs = [node(f"n{number}", 4) for number in range(1, nodes + 1)]
    own: dict[str, dict[str, Any]] = {"low": {}, "high": {"preempt": "low"}, "normal": {}}
    for name, value in (qos or {}).items():
        own[name.partition("__")[0]][name.partition("__")[2]] = value
    rules = PreemptionPolicy(type="qos", mode=tuple(mode.split(",")), **policy)
    here = Site(
        configs,
        [partition("debug", configs, default=True, **(home or {}))],
        structs.replace(SETTINGS, preemption=rules, requeue_delay_seconds=5.0, **(settings or {})),
    )
    records = tuple(Qos(name=name, id=number, **fields) for number, (name, fields) in enumerate(own.items(), 1))
    here.apply(PolicyChanged(at=here.now, policy=Policy(version=1, associations=ACCOUNTS, qos=records)))
    return here


def submit(here: Site, qos: str, tasks: int = 4, *, priority: int = 1, **fields: Any) -> int:
    request = spec(batch=True, tasks=tasks, qos=qos, account="lab", user="ann", **fields)
    return here.submit(request, priority=priority)


def do(here: Site, command: Any) -> None:
    here.projection.follow(here.machine.handle(command, here.now).changes)


def test_a_job_of_a_qos_preempts_those_of_the_qos_that_it_lists_and_no_others() -> None:
    here = site(nodes=2)
    low, normal = submit(here, "low"), submit(here, "normal")
    run(here)
    high = submit(here, "high")
    another = submit(here, "high")
    assert victims(run(here)) == [[low]]
    leave(here)
    run(here)
    assert states(here, low, normal, high, another) == ["PENDING", "RUNNING", "RUNNING", "PENDING"]


def test_equal_requests_of_another_qos_are_tested_though_the_first_may_preempt_no_job() -> None:
    here = site()
    low = submit(here, "low")
    run(here)
    submit(here, "normal", priority=9)
    high = submit(here, "high", priority=1)
    assert victims(run(here)) == [[low]]
    leave(here)
    run(here)
    assert states(here, high) == ["RUNNING"], "what was taken for it is not lost to a higher job"


@pytest.mark.parametrize("end", ["cancelled", "held"])
def test_a_job_that_no_longer_waits_has_no_claim_left(end: str) -> None:
    here = site()
    submit(here, "low")
    run(here)
    high = submit(here, "high")
    run(here)
    assert here.jobs[high].awaits_victims_since
    assert here.projection.records[high].claiming
    target = JobTarget(high)
    do(here, HoldJob(target=target) if end == "held" else CancelJobs(filter=JobFilter(targets=(target,))))
    assert not here.jobs[high].awaits_victims_since
    assert not here.projection.records[high].claiming


@pytest.mark.parametrize(
    ("cluster", "own", "after"),
    [
        ("REQUEUE", "", "PENDING"),
        ("REQUEUE", "cancel", "PREEMPTED"),
        ("CANCEL", "requeue", "PENDING"),
        ("CANCEL", "within", "PREEMPTED"),
        ("SUSPEND,GANG", "", "SUSPENDED"),
        ("SUSPEND,GANG", "gang", "SUSPENDED"),
    ],
)
def test_the_mode_is_that_of_the_victims_qos_else_the_clusters(cluster: str, own: str, after: str) -> None:
    here = site(cluster, home={"oversubscribe": "FORCE:1", "preempt_mode": "OFF"}, qos={"low__preempt_mode": own})
    low = submit(here, "low")
    run(here)
    high = submit(here, "high")
    run(here)
    assert states(here, low) == [after], "the partition's PreemptMode does not count"
    leave(here)
    run(here)
    assert states(here, high) == ["RUNNING"]


def test_a_suspended_job_goes_on_when_its_preemptor_in_the_same_partition_has_ended() -> None:
    here = site("SUSPEND,GANG", home={"oversubscribe": "YES:1"})
    low = submit(here, "low")
    run(here)
    high = submit(here, "high", sharing=Sharing.EXCLUSIVE)
    run(here)
    assert states(here, low, high) == ["SUSPENDED", "RUNNING"]
    do(here, CancelJobs(filter=JobFilter(targets=(JobTarget(high),))))
    do(here, JobGone(node="n1", job_id=high, restart_count=0))
    assert states(here, low) == ["RUNNING"]


@pytest.mark.parametrize("where", ["cluster", "qos"])
def test_within_lets_a_job_of_higher_priority_preempt_one_of_its_own_qos(where: str) -> None:
    here = site("REQUEUE,WITHIN") if where == "cluster" else site(qos={"normal__preempt_mode": "within"})
    first = submit(here, "normal", priority=5)
    run(here)
    submit(here, "normal", priority=5)
    assert run(here).preemptions == ()
    submit(here, "normal", priority=6)
    assert victims(run(here)) == [[first]]


@pytest.mark.parametrize("mode", ["REQUEUE,WITHIN", "REQUEUE,PRIORITY"])
def test_priorities_by_factors_decide_as_those_set_by_hand_do(mode: str) -> None:
    """What is in force of a job that waits the scheduler alone knows; of one that runs, what was so at its start."""
    here = site(mode, settings={"priority_multifactor": True})
    own, other = ("normal", "normal") if "WITHIN" in mode else ("low", "high")

    def submitted(qos: str, nice: int) -> int:
        return here.submit(spec(batch=True, tasks=4, qos=qos, account="lab", user="ann", nice=nice))

    first = submitted(own, -10)
    run(here)
    submitted(other, -10)
    assert run(here).preemptions == ()
    submitted(other, -20)
    assert victims(run(here)) == [[first]]
    assert states(here, first) == ["PENDING"], "the core agrees"


def test_no_job_that_started_with_min_exempt_priority_is_a_victim() -> None:
    here = site(settings={"priority_multifactor": True}, min_exempt_priority=100)
    submit(here, "low", nice=-1000)
    run(here)
    submit(here, "high")
    assert run(here).preemptions == ()


def test_without_within_jobs_of_one_qos_leave_each_other_alone() -> None:
    here = site()
    submit(here, "normal", priority=5)
    run(here)
    submit(here, "normal", priority=6)
    assert run(here).preemptions == ()


def test_the_grace_time_is_that_of_the_qos() -> None:
    here = site(home={"grace_seconds": 900}, qos={"low__grace_seconds": 30})
    low = submit(here, "low")
    run(here)
    submit(here, "high")
    run(here)
    assert here.jobs[low].ends_at == here.now + 30
    here.now += 30
    tick(here)
    assert states(here, low) == ["PENDING"]


@pytest.mark.parametrize(
    ("fields", "until"),
    [
        ({"exempt_seconds": 60}, 60.0),
        ({"exempt_seconds": 60, "qos": {"low__preempt_exempt_seconds": 0}}, 0.0),
        ({"exempt_seconds": 60, "qos": {"low__preempt_exempt_seconds": 200}}, 200.0),
        ({"qos": {"normal__preempt_exempt_seconds": 90}, "home": {"qos": "normal"}}, 90.0),
    ],
)
def test_a_cycle_reports_when_the_first_job_loses_its_exemption_and_preempts_it_then(
    fields: dict[str, Any], until: float
) -> None:
    """PreemptExemptTime of the partition's QOS, else of the job's, else of the cluster; -1 leaves it to the next."""
    here = site(**fields)
    low = submit(here, "low")
    run(here)
    began = here.now
    here.now += 10
    submit(here, "high")
    plan = run(here)
    if not until:
        assert victims(plan) == [[low]]
        return
    assert (plan.preemptions, plan.look_again_at) == ((), began + until)
    here.now = began + until - 0.001
    assert (run(here).preemptions, run(here).look_again_at) == ((), began + until)
    here.now = began + until
    assert victims(run(here)) == [[low]]


def test_a_suspended_job_is_exempt_for_as_much_longer_and_suspending_needs_no_exemption() -> None:
    here = site("SUSPEND,GANG", home={"oversubscribe": "FORCE:1"}, exempt_seconds=60)
    low = submit(here, "low")
    run(here)
    submit(here, "high")
    run(here)
    assert states(here, low) == ["SUSPENDED"]


def test_no_job_is_preempted_for_a_job_that_a_limit_holds_back() -> None:
    """Whole nodes count in full: what the job would be given exceeds the limit, though what it asks for does not."""
    here = site(settings={"enforce": ("limits", "qos", "associations")}, qos={"high__grp_tres": "cpu=2"})
    submit(here, "low")
    run(here)
    submit(here, "high", tasks=1, sharing=Sharing.EXCLUSIVE)
    assert run(here).preemptions == ()


def test_no_job_is_preempted_for_licenses_that_stay_in_use() -> None:
    here = site(settings={"licenses": (("matlab", 1),)})
    submit(here, "low", tasks=1)
    submit(here, "normal", tasks=1, licenses="matlab")
    run(here)
    submit(here, "high", licenses="matlab")
    assert run(here).preemptions == ()


def test_a_qos_that_accounting_does_not_know_preempts_no_job() -> None:
    here = site()
    submit(here, "ghost")
    run(here)
    submit(here, "high")
    assert run(here).preemptions == ()


def test_one_qos_among_many_costs_one_list_of_victims_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are looked at once for all preemptors of a kind, and not again for each of them."""
    here = site(nodes=6)
    for _ in range(6):
        submit(here, "low")
    run(here)
    for tasks in (3, 4, 4):
        submit(here, "high", tasks=tasks)
    lists: list[object] = []
    real = PreemptionRules.among

    def counted(self: PreemptionRules, who: Any, some: Any) -> Any:
        lists.append(who)
        return real(self, who, some)

    monkeypatch.setattr(PreemptionRules, "among", counted)
    assert len(run(here).preemptions) == 3
    assert len(lists) == 1


def test_each_task_of_an_array_keeps_the_room_that_was_made_for_it() -> None:
    here = site(nodes=2)
    first, second = submit(here, "low"), submit(here, "low")
    run(here)
    request = spec(batch=True, tasks=4, qos="high", account="lab", user="ann")
    array = here.submit(request, priority=1, array=range(3))
    assert sorted(victims(run(here))) == [[first], [second]]
    rival = submit(here, "normal", priority=9)
    here.gone(first, *here.jobs[first].completing)
    run(here)
    here.gone(second, *here.jobs[second].completing)
    run(here)
    tasks = {job.array_task_id: job.state.value for job in here.jobs.values() if job.array_job_id == array}
    assert tasks == {0: "RUNNING", 1: "RUNNING", None: "PENDING"}
    assert states(here, rival) == ["PENDING"]
    assert [job.id for job in here.jobs.values() if job.awaits_victims_since] == []
    for job in here.jobs.values():
        assert here.projection.records[job.id].claiming is False
