"""AdminLevel and coordinators in the controller, as 22.05 allowed and refused the same commands.

Source: sacctmgr(1) AdminLevel, coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from spritz.model.cluster.settings import Caller
from spritz.model.commands.cluster import DeletePartition, UpdatePartition
from spritz.model.commands.job import (
    CancelJobs,
    HoldJob,
    NotifyJob,
    ReleaseJob,
    RequeueJob,
    SuspendJob,
    TopJob,
    UpdateJob,
)
from spritz.model.commands.reservation import CreateReservation, ReservationRequest
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Hold
from spritz.model.limits.change import change_between
from spritz.model.limits.records import Association, ChangePolicy, Policy, SetPolicy
from spritz_testing.builders import ALICE, BOB, World

MakeWorld = Callable[..., World]


def a_caller(uid: int, name: str) -> Caller:
    return Caller(uid=uid, gid=uid, user=name, group=name, groups=(uid,), group_names=(name,))


OPERATOR, ADMINISTRATOR, COORDINATOR = a_caller(2001, "op"), a_caller(2002, "adm"), a_caller(2003, "coord")
TREE = (
    Association(id=1, cluster="cluster", account="root"),
    Association(id=2, cluster="cluster", account="phys", parent="root"),
    Association(id=3, cluster="cluster", account="sub", parent="phys"),
    Association(id=4, cluster="cluster", account="chem", parent="root"),
    Association(id=5, cluster="cluster", account="sub", user="alice", is_default=True),
    Association(id=6, cluster="cluster", account="chem", user="alice"),
)
POLICY = Policy(
    version=1,
    associations=TREE,
    admins=(("adm", "Administrator"), ("op", "Operator")),
    coordinators=(("coord", "phys"),),
)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    made = make_world()
    made.ok(SetPolicy(policy=POLICY))
    return made


def allowed(world: World, command: Struct, caller: Caller) -> bool:
    reply = world.do(command, caller).reply
    outcomes = getattr(reply, "outcomes", ())
    code = outcomes[0].code if outcomes else getattr(reply, "code", "")
    assert code in ("", "ESLURM_ACCESS_DENIED", "ESLURM_USER_ID_MISSING"), code
    return not code


def changed(job: int, **changes: Any) -> UpdateJob:
    return UpdateJob(target=JobTarget(job), changes=changes)


#: what -> (the job runs, operator, administrator, coordinator of an account above)
COMMANDS: dict[str, tuple[Callable[[int], Struct], bool, bool, bool, bool]] = {
    "hold": (lambda job: HoldJob(target=JobTarget(job)), False, True, True, True),
    "release": (lambda job: ReleaseJob(target=JobTarget(job)), False, True, True, True),
    "cancel": (lambda job: CancelJobs(filter=JobFilter(targets=(JobTarget(job),))), True, True, True, True),
    "top": (lambda job: TopJob(targets=(JobTarget(job),), priorities=((job, 5),)), False, True, True, False),
    "suspend": (lambda job: SuspendJob(target=JobTarget(job)), True, True, True, False),
    "notify": (lambda job: NotifyJob(target=JobTarget(job), message="x"), True, False, False, False),
    "requeue": (lambda job: RequeueJob(target=JobTarget(job)), True, True, True, True),
    "name": (lambda job: changed(job, name="x"), False, True, True, True),
    "nice": (lambda job: changed(job, nice=-5), False, True, True, False),
    "longer": (lambda job: changed(job, time_limit_minutes=900), True, True, True, True),
    "account": (lambda job: changed(job, account="chem"), False, True, True, False),
    "own account": (lambda job: changed(job, account="phys"), False, True, True, True),
    "admin comment": (lambda job: changed(job, admin_comment="x"), False, False, True, False),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_rights_over_other_users_jobs(world: World, name: str) -> None:
    make, runs, *expected = COMMANDS[name]

    def tried(caller: Caller, account: str) -> bool:
        job = world.submit(account=account, time_limit_minutes=10, requeue=True)
        if runs:
            world.start(job)
            world.started(job)
        done = allowed(world, make(job), caller)
        world.cancel(job)
        return done

    callers = (OPERATOR, ADMINISTRATOR, COORDINATOR)
    assert [tried(caller, "sub") for caller in callers] == expected
    assert [tried(caller, "chem") for caller in callers[:2]] == expected[:2]
    assert not tried(COORDINATOR, "chem")
    assert not tried(BOB, "sub")


def test_an_operators_hold_is_lifted_by_operators_and_a_coordinators_by_the_owner(world: World) -> None:
    job = world.submit(account="sub")
    world.ok(HoldJob(target=JobTarget(job)), OPERATOR)
    assert world.job(job).hold is Hold.ADMIN
    assert world.refused(ReleaseJob(target=JobTarget(job)), ALICE) == "ESLURM_ACCESS_DENIED"
    assert world.refused(ReleaseJob(target=JobTarget(job)), COORDINATOR) == "ESLURM_ACCESS_DENIED"
    world.ok(ReleaseJob(target=JobTarget(job)), OPERATOR)
    world.ok(HoldJob(target=JobTarget(job)), COORDINATOR)
    assert world.job(job).hold is Hold.USER
    world.ok(ReleaseJob(target=JobTarget(job)), ALICE)


def test_operators_make_reservations_and_administrators_partitions(world: World) -> None:
    def reserved(caller: Caller) -> bool:
        request = ReservationRequest(
            name=f"r{caller.uid}", start_at=world.now + 60, duration_seconds=60.0, node_count=1, users=("alice",)
        )
        return allowed(world, CreateReservation(request=request), caller)

    callers = (OPERATOR, ADMINISTRATOR, COORDINATOR, BOB)
    assert [reserved(caller) for caller in callers] == [True, True, False, False]
    name = next(iter(world.state.partitions))
    hidden = UpdatePartition(name=name, changes={"hidden": True})
    assert [allowed(world, hidden, caller) for caller in callers] == [False, True, False, False]
    assert world.refused(DeletePartition(name=name), OPERATOR) == "ESLURM_USER_ID_MISSING"


def test_only_the_owner_runs_steps_in_a_job_or_submits_as_its_owner(world: World) -> None:
    job = world.submit(account="sub")
    world.start(job)
    world.started(job)
    for caller in (OPERATOR, ADMINISTRATOR, COORDINATOR):
        assert world.step_refused(job, caller) == "ESLURM_ACCESS_DENIED"
        assert world.submit_refused(caller, uid=ALICE.uid) == "ESLURM_USER_ID_MISSING"
        assert world.refused(SetPolicy(policy=replace(POLICY, version=2)), caller) == "ESLURM_ACCESS_DENIED"


def test_operators_choose_priority_and_nice_of_their_own_jobs(world: World) -> None:
    job = world.submit(OPERATOR, priority=77, nice=-5, admin_comment="x")
    assert (world.job(job).spec.priority, world.job(job).spec.nice) == (77, -5)
    assert world.job(job).spec.admin_comment == ""
    assert world.job(world.submit(ADMINISTRATOR, admin_comment="x")).spec.admin_comment == "x"
    assert world.submit_refused(COORDINATOR, nice=-5) == "ESLURM_INVALID_NICE"


def test_what_an_edit_takes_away_is_gone_at_once(world: World) -> None:
    job = world.submit(account="sub")
    assert allowed(world, changed(job, name="x"), COORDINATOR)
    moved = tuple(replace(one, parent="chem") if one.id == 3 else one for one in TREE)
    world.ok(ChangePolicy(change=change_between(POLICY, replace(POLICY, version=2, associations=moved))))
    assert not allowed(world, changed(job, name="y"), COORDINATOR)
    before = world.state.rules.policy
    world.ok(ChangePolicy(change=change_between(before, replace(before, version=3, coordinators=(("coord", "chem"),)))))
    assert allowed(world, changed(job, name="y"), COORDINATOR)
    before = world.state.rules.policy
    world.ok(ChangePolicy(change=change_between(before, replace(before, version=4, admins=(), coordinators=()))))
    assert not allowed(world, changed(job, name="z"), COORDINATOR)
    assert not allowed(world, changed(job, name="z"), OPERATOR)
