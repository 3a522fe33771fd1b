"""Reservations with real daemons and commands: who runs where, and what a killed controller still knows."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from spritz.model.resources import GresRequest
from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import run

MakeCluster = Callable[..., Cluster]


def say(cluster: Cluster, *argv: str) -> str:
    """Standard output of a command that must succeed."""
    done = run(cluster, *argv)
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout.decode()


def reserve(cluster: Cluster, *words: str) -> None:
    say(cluster, "scontrol", "create", "reservation", "Accounts=physics", *words)


def test_a_reservation_from_its_beginning_to_its_end(make_cluster: MakeCluster) -> None:
    """Nodes are kept over a kill -9 of the controller; its job knows it, and is ended by a shortened reservation."""
    cluster = make_cluster(nodes=2, cpus=2).start()
    reserve(cluster, "ReservationName=lab", "StartTime=now", "Duration=60", "Nodes=n1")
    assert "resv n1\n" in say(cluster, "sinfo", "-h", "-o", "%t %N")
    outside = cluster.submit("true", node_list=("n1",), time_limit_minutes=5)
    script = "echo $SLURM_JOB_RESERVATION > inside; exec sleep 1000"
    inside = cluster.submit(script, reservation="lab", account="physics", time_limit_minutes=600)
    cluster.wait_state(inside, "RUNNING")
    until(lambda: (cluster.work / "inside").exists() and (cluster.work / "inside").read_text() == "lab\n", "it knows")
    assert say(cluster, "squeue", "-h", "-R", "lab", "-o", "%i %v %N") == f"{inside} lab n1\n"
    assert "Reservation=lab" in say(cluster, "scontrol", "show", "job", str(inside))
    reason = "(ReqNodeNotAvail, May be reserved for other job)"
    until(lambda: say(cluster, "squeue", "-h", "-j", str(outside), "-o", "%R") == reason + "\n", "the other is told")

    cluster.kill_controller()
    cluster.start_controller()
    say(cluster, "scontrol", "reconfigure")
    assert "ReservationName=lab " in say(cluster, "scontrol", "-o", "show", "reservation")
    busy = run(cluster, "scontrol", "delete", "ReservationName=lab")
    assert busy.stderr == b"delete_reservation ReservationName=lab: Requested reservation is in use\n"
    assert cluster.job(outside).state.value == "PENDING"

    say(cluster, "scontrol", "update", "ReservationName=lab", "EndTime=now+2")
    cluster.wait_state(inside, "TIMEOUT")
    cluster.wait_state(outside, "COMPLETED")
    assert say(cluster, "sinfo", "-T") == "No reservations in the system\n"


def test_maintenance_keeps_long_jobs_away_and_lets_short_ones_by(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=2, cpus=2).start()
    reserve(cluster, "ReservationName=maint", "StartTime=now+10minutes", "Duration=60", "Nodes=ALL", "Flags=MAINT")
    short = cluster.submit("true", time_limit_minutes=1)
    long = cluster.submit("true", time_limit_minutes=60)
    cluster.wait_state(short, "COMPLETED")
    until(lambda: cluster.job(long).reason_detail == "Reserved for maintenance", "the longer one is told why it waits")
    say(cluster, "scontrol", "delete", "ReservationName=maint")
    cluster.wait_state(long, "COMPLETED")


def test_users_without_access_are_refused_in_slurms_words(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=1, cpus=2).start()
    reserve(cluster, "ReservationName=lab", "StartTime=now", "Duration=60", "NodeCnt=1")
    refused = "sbatch: error: Batch job submission failed: "
    wrong = run(cluster, "sbatch", "--reservation=lab", "--wrap", "true")
    assert (wrong.returncode, wrong.stderr.decode()) == (1, refused + "Access denied to requested reservation\n")
    none = run(cluster, "sbatch", "--reservation=nosuch", "--wrap", "true")
    assert (none.returncode, none.stderr.decode()) == (1, refused + "Requested reservation is invalid\n")
    busy = run(cluster, "scontrol", "create", "reservation", "Accounts=a", "StartTime=now", "Duration=1", "Nodes=n1")
    words = "Error creating the reservation: Requested reservation overlaps with another reservation\n"
    assert (busy.returncode, busy.stderr.decode()) == (1, words)


def test_gpus_and_licenses_are_kept_for_the_reservations_own_jobs(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        nodes=1,
        extra="GresTypes=gpu\nLicenses=matlab:2\n",
        node_lines="NodeName=n1 NodeAddr=127.0.0.1 CPUs=4 RealMemory=8000 Gres=gpu:2 State=UNKNOWN",
    )
    (cluster.conf.parent / "gres.conf").write_text("NodeName=n1 Name=gpu Count=2\n")
    cluster.start()
    reserve(cluster, "ReservationName=lab", "StartTime=now", "Duration=60", "TRES=gres/gpu=1", "Licenses=matlab:1")
    [shown] = json.loads(say(cluster, "scontrol", "--json", "show", "reservation"))["reservations"]
    assert (shown["tres"], shown["licenses"], shown["node_list"]) == ("cpu=2,gres/gpu=1", "matlab:1", "n1")
    gpu = (GresRequest("gpu", "", 1),)
    hold = "exec sleep 1000"
    inside = cluster.submit(hold, reservation="lab", account="physics", gpus_per_node=gpu, licenses="matlab")
    outside = cluster.submit(hold, gpus_per_node=gpu, licenses="matlab")
    late = cluster.submit(hold, gpus_per_node=gpu)
    for job, device in ((inside, "1"), (outside, "2")):
        allocation = cluster.wait_state(job, "RUNNING").allocation
        assert allocation is not None
        assert [gres.indexes for gres in allocation.nodes[0].gres] == [device]
    assert cluster.job(late).state.value == "PENDING"
    say(cluster, "scancel", str(inside))
    cluster.wait_state(inside, "CANCELLED")
    say(cluster, "scontrol", "delete", "ReservationName=lab")
    cluster.wait_state(late, "RUNNING")


def test_the_sites_programs_are_told_of_beginnings_and_ends(make_cluster: MakeCluster) -> None:
    """ResvProlog once for each beginning; ResvEpilog for each end, also of one that is deleted while it holds."""
    cluster = make_cluster(nodes=1, cpus=2)
    for key in ("ResvProlog", "ResvEpilog"):
        path = cluster.root / key
        path.write_text(f'#!/bin/sh\necho "{key} $*" >> {cluster.work}/told\n')
        path.chmod(0o755)
        cluster.extra += f"\n{key}={path}"
    cluster.write_conf()
    cluster.start()
    told = cluster.work / "told"
    reserve(cluster, "ReservationName=lab", "StartTime=now", "Duration=60", "Nodes=n1", "Flags=DAILY")
    reserve(cluster, "ReservationName=later", "StartTime=now+1hour", "Duration=60", "Nodes=n1")
    until(lambda: told.exists() and told.read_text().count("\n") == 1, "it has begun")
    say(cluster, "scontrol", "update", "ReservationName=lab", "Skip")
    until(lambda: told.read_text().count("\n") == 2, "it goes on to tomorrow")
    say(cluster, "scontrol", "delete", "ReservationName=later")
    say(cluster, "scontrol", "delete", "ReservationName=lab")
    reserve(cluster, "ReservationName=last", "StartTime=now", "Duration=60", "Nodes=n1")
    until(lambda: told.read_text().count("\n") == 3, "another has begun")
    assert told.read_text().splitlines() == [
        "ResvProlog lab",
        "ResvEpilog lab",
        "ResvProlog last",
    ], "what never began has not ended"


@pytest.mark.slow
def test_a_guest_of_a_reservation_hears_its_signal_and_leaves(make_cluster: MakeCluster) -> None:
    """scontrol(1) MaxStartDelay; sbatch(1) --signal=R:."""
    cluster = make_cluster(nodes=1, cpus=2).start()
    reserve(cluster, "ReservationName=lab", "StartTime=now", "Duration=60", "Nodes=n1", "MaxStartDelay=0:30")
    assert "MaxStartDelay=00:01:00" in say(cluster, "scontrol", "show", "reservation")
    script = "trap 'echo heard > heard' USR1; echo > begun; while :; do sleep 0.05; done"
    asked = ("--signal=RB:USR1@2", "--exclusive", "--time=90", "-J", "guest")
    (cluster.work / "guest.sh").write_text(f"#!/bin/bash\n{script}\n")
    guest = int(say(cluster, "sbatch", "--parsable", *asked, "guest.sh"))
    until(lambda: (cluster.work / "begun").exists(), "the guest runs in the reservation")
    own = cluster.submit("true", reservation="lab", account="physics", time_limit_minutes=1)
    cluster.wait_state(guest, "PREEMPTED")
    assert (cluster.work / "heard").exists()
    cluster.wait_state(own, "COMPLETED")
