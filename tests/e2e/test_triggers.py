"""strigger, as administrators run it. Texts and layout are those of 22.05. Source: strigger(1)."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import environment, program, run
from tests.e2e.users import NOBODY, others_can_run

HEADING = "TRIG_ID RES_TYPE   RES_ID TYPE                                OFFSET USER     FLAGS PROGRAM\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes, and a program that notes what it is told."""
    made = Cluster(nodes=3)
    path = made.work / "program"
    path.write_text(f'#!/bin/sh\necho "$(id -un): $@" >> {made.work}/told\n')
    path.chmod(0o755)
    try:
        yield made.start()
    finally:
        made.close()


def strigger(cluster: Cluster, *words: str) -> tuple[int, str, str]:
    """Status, standard output and standard error. `$P` is the program."""
    given = [word.replace("$P", f"{cluster.work}/program") for word in words]
    done = run(cluster, "strigger", *given)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def told(cluster: Cluster) -> list[str]:
    """What the program was told."""
    path = cluster.work / "told"
    return path.read_text().splitlines() if path.exists() else []


def hears(cluster: Cluster, line: str) -> None:
    """Wait for that."""
    user = pwd.getpwuid(os.getuid()).pw_name
    until(lambda: f"{user}: {line}" in told(cluster), lambda: f"the program is told {line!r}: {told(cluster)}")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "strigger: error: You must use exactly one of the following options: --set, --get or --clear\n"),
        (("--set", "--get"), "strigger: error: You must use exactly one of the following options: --set, --get or "),
        (("--set", "--program=$P"), "strigger: error: You must specify a trigger (--down, --up, --reconfig, --time, "),
        (("--set", "--down"), "strigger: error: You must specify a --program value\n"),
        (("--set", "--down", "--program=x"), 'strigger: error: The --program value must start with "/"\n'),
        (("--set", "--down", "--program=/x"), "strigger: error: Invalid --program value, file not found\n"),
        (("--set", "--fini", "--program=$P"), "strigger: error: You must specify a --jobid value\n"),
        (("--set", "--fini", "-jx", "--program=$P"), "strigger: error: Invalid jobid x\n"),
        (("--set", "--fini", "-j99", "--program=$P"), "slurm_set_trigger: Invalid job id specified\n"),
        (("--set", "--down", "-nnowhere", "--program=$P"), "slurm_set_trigger: Invalid node name specified\n"),
        (("--set", "--down", "-o33000", "-p$P"), "strigger: error: The --offset parameter must be between +/-32000\n"),
        (("--set", "--down", "--flags=x", "-p$P"), "strigger: error: Invalid flags x\n"),
        (("--clear",), "strigger: error: You must specify a --id, --jobid, or --user to clear\n"),
        (("--clear", "--id=77"), "slurm_clear_trigger: No such process\n"),
        (("--set", "--burst_buffer", "-p$P"), "strigger: error: option --burst_buffer is not supported by Spritz: "),
    ],
)
def test_what_makes_no_sense_is_refused(cluster: Cluster, words: tuple[str, ...], complaint: str) -> None:
    status, output, said = strigger(cluster, *words)
    assert (status, output, said[: len(complaint)]) == (1, "", complaint)
    assert strigger(cluster, "--get") == (0, "", "")
    assert strigger(cluster, "--clear", "-Q", "--id=77") == (0, "", "")


@pytest.mark.slow
def test_programs_run_for_nodes_and_jobs_once_or_each_time(cluster: Cluster) -> None:
    user = f"{pwd.getpwuid(os.getuid()).pw_name:8}"
    job = cluster.submit("sleep 60", time_limit_minutes=1)
    cluster.wait_state(job, "RUNNING")
    assert strigger(cluster, "--set", "--down", "-p$P") == (0, "", "")
    assert strigger(cluster, "--set", "--down", "-p$P") == (1, "", "slurm_set_trigger: Duplicate event trigger\n")
    for words in (
        ("--node=n[2-3]", "--drained", "--flags=PERM", "-p$P drained"),
        (f"-j{job}", "--fini", "-p$P fini"),
        (f"-j{job}", "--time", "--offset=60", "-p$P late"),
        (f"-j{job}", "--time", "-p$P ended"),
        ("-v", "--up", "-p$P up"),
        ("--idle", "-o1", "-nn3", "-p$P idle"),
    ):
        assert strigger(cluster, "--set", *words)[0] == 0
    listed = strigger(cluster, "--get", "--jobid", str(job))[1].replace(str(cluster.work), "W")
    first = int(listed.splitlines()[1].split()[0])
    assert listed == HEADING + (
        f"{first:7} job       {job:7} fini                                     0 {user}       W/program fini\n"
        f"{first + 1:7} job       {job:7} time                                    60 {user}       W/program late\n"
        f"{first + 2:7} job       {job:7} time                                     0 {user}       W/program ended\n"
    )
    assert strigger(cluster, "--set", f"-j{job}", "--time", "--offset=-60", "-p$P time")[0] == 0
    hears(cluster, f"time {job}")
    hears(cluster, "idle n3")
    for state in ("down", "drain"):
        run(cluster, "scontrol", "update", "nodename=n[2-3]", f"state={state}", "reason=test")
    hears(cluster, "n[2-3]")
    hears(cluster, "drained n[2-3]")
    cluster.kill_controller()
    cluster.start_controller()
    run(cluster, "scontrol", "update", "nodename=n[2-3]", "state=resume")
    hears(cluster, "up n[2-3]")
    cluster.cancel(job)
    hears(cluster, f"fini {job}")
    # Its time is over when it ends, as in Slurm; a minute later is yet to come.
    hears(cluster, f"ended {job}")
    run(cluster, "scontrol", "update", "nodename=n2", "state=drain", "reason=again")
    hears(cluster, "drained n2")
    left = strigger(cluster, "--get", "-N")[1].splitlines()
    assert [line.split()[1:4] for line in left] == [["node", "n[2-3]", "drained"], ["job", str(job), "time"]]
    assert strigger(cluster, "--clear", "--jobid", str(job))[0] == 0
    assert "PERM" in left[0]
    assert strigger(cluster, "--clear", "-v", "--id", left[0].split()[0])[2].endswith(" cleared\n")
    assert strigger(cluster, "--get") == (0, "", "")
    assert len(told(cluster)) == len(set(told(cluster))), told(cluster)


def test_a_controller_that_starts_again_tells_it(cluster: Cluster) -> None:
    assert strigger(cluster, "--set", "-A", "-p$P")[0] == 0
    cluster.kill_controller()
    cluster.start_controller()
    hears(cluster, "primary_slurmctld_resumed_operation")


@pytest.mark.root
def test_programs_run_as_the_user_who_set_them(cluster: Cluster) -> None:
    if not others_can_run():
        pytest.skip("other users cannot run our commands")

    def as_nobody(*words: str) -> bytes:
        command = [program("strigger"), *words]
        env = environment(cluster)
        return subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], env=env, capture_output=True).stderr

    log = cluster.work / "told"
    log.touch()
    log.chmod(0o666)
    assert strigger(cluster, "--set", "--fail", "-p$P")[0] == 0
    number = strigger(cluster, "--get", "-N")[1].split()[0]
    assert as_nobody("--set", "--drained", "-nn1", "--program", f"{cluster.work}/program") == b""
    assert as_nobody("--clear", "--id", number) == b"slurm_clear_trigger: Access/permission denied\n"
    run(cluster, "scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    name = pwd.getpwuid(NOBODY).pw_name
    until(lambda: f"{name}: n1" in told(cluster), "the program runs as another user")
    assert strigger(cluster, "--clear", "--user", "root")[0] == 0
