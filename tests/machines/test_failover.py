"""Two controllers on machines of their own, PostgreSQL on a third, two nodes, a login host."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.conformance.databases import reason
from tests.e2e.people import made_people
from tests.e2e.users import others_can_run
from tests.machines.database_server import address_of, server_on
from tests.machines.lan import Lan, Machine, Talk, eventually

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(reason("postgresql")), reason=reason("postgresql")),
]

CONF = """\
ClusterName=several
SlurmctldHost=ctl1
SlurmctldHost=ctl2
SlurmctldPort=26837
SlurmdPort=26838
SlurmUser=root
SlurmctldParameters=journal={url},enable_configless
SlurmctldPrimaryOnProg={root}/on
SlurmctldPrimaryOffProg={root}/off
AuthType=auth/slurm
StateSaveLocation=/run/ctl
SlurmdSpoolDir=/run/spool
SlurmctldPidFile=/run/ctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/run/ctld.log
SlurmdLogFile=/run/slurmd.log
ProctrackType=proctrack/linuxproc
ReturnToService=2
HealthCheckProgram={root}/health
HealthCheckInterval=3600
NodeName=n1,n2,ctl2 CPUs=1
PartitionName=main Nodes=ALL Default=YES
"""

PORT = 26837


class Site:
    """The machines, and what is asked of them."""

    def __init__(self, lan: Lan) -> None:
        self.lan = lan
        self.conf = str(lan.root / "etc/slurm.conf")

    def __getitem__(self, name: str) -> Machine:
        return self.lan.machines[name]

    def out(self, host: str, *command: str) -> str:
        return self[host].out(*command, SLURM_CONF=self.conf)

    def begin(self, host: str) -> None:
        """Start the controller of a machine."""
        self.out(host, "slurmctld")

    def log(self, host: str) -> str:
        return (self[host].own / "run/ctld.log").read_text()

    def ping(self, host: str) -> str:
        done = self[host].run("scontrol", "ping", SLURM_CONF=self.conf)
        return done.stdout + done.stderr

    def leads(self, name: str) -> bool:
        """Whether a controller leads while the other stands by, as a login host sees it."""
        text = self.ping("login")
        return text.count(" is UP\n") == 2 and ("ctl2 leads" in text) == (name == "ctl2")

    def rest_pings(self) -> dict[str, bool]:
        """Whether each controller answers, by the login host's slurmrestd."""
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self["login"].own / "run/rest"))) as client:
            found = client.get("http://login/slurm/v0.0.45/ping", timeout=60).json()["pings"]
        assert [ping["primary"] for ping in found] == [True, False]
        return {ping["hostname"]: ping["responding"] for ping in found}

    def serves_rest(self) -> bool:
        """Whether the login host's slurmrestd takes connections."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self["login"].own / "run/rest")) == 0

    def submit(self, host: str, *words: str) -> int:
        return int(self.out(host, "sbatch", "-o", "/dev/null", *words).split()[-1])

    def state(self, host: str, job: int) -> str:
        return self.out(host, "scontrol", "show", "job", str(job)).partition("JobState=")[2].split()[0]

    def wait(self, host: str, job: int, state: str) -> None:
        eventually(lambda: self.state(host, job) == state, f"job {job} is {state}")

    def begun(self, host: str, name: str, *command: str) -> Talk:
        """Start a command with which the test talks."""
        return Talk(self[host], self.conf, name, command)


@contextmanager
def begun(lan: Lan, *, durable: bool = False) -> Iterator[Site]:
    """All daemons on their machines; ctl1 leads. `durable`: PostgreSQL syncs what it commits."""
    for name in ("db", "ctl1", "ctl2", "n1", "n2", "login"):
        lan.machine(name)
    etc = lan.root / "etc"
    etc.mkdir()
    for name in ("on", "off"):
        program = lan.root / name
        program.write_text(f"#!/bin/sh\necho {name} >> /run/programs\n")
        program.chmod(0o755)
    # Its command goes by the relay of slurmd, before the nodes are registered.
    program = lan.root / "health"
    program.write_text("#!/bin/sh\nif squeue -h; then echo reached; else echo failed; fi >> /run/checked\n")
    program.chmod(0o755)
    with server_on(lan.machines["db"], durable=durable) as database:
        url = address_of(database, lan.machines["db"])
        (etc / "slurm.conf").write_text(CONF.format(url=url, root=lan.root))
        key = etc / "slurm.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        found = Site(lan)
        for host in ("ctl1", "ctl2"):
            found.begin(host)
        for host in ("n1", "ctl2"):
            found.out(host, "slurmd")
        line = found.out("ctl1", "spritz", "token", "create", "--role", "node", "--uses", "1").split()
        lan.machines["n2"].out(*line)
        found.out("login", "sackd")
        yield found


@pytest.fixture
def site() -> Iterator[Site]:
    with Lan() as lan, begun(lan) as found:
        yield found


def test_a_machine_dies_and_another_leads(site: Site) -> None:
    """Commands and nodes on other machines find the controller that leads; tokens and machines are known to it."""
    both = "Slurmctld(primary) at ctl1 is UP\nSlurmctld(backup) at ctl2 is UP\n"
    for host in ("ctl1", "ctl2", "login", "n1"):
        assert site.ping(host) == both, host
    assert sorted(site.out("login", "srun", "-N3", "hostname").split()) == ["ctl2", "n1", "n2"]
    for host in ("ctl2", "n1", "n2"):
        assert (site[host].own / "run/checked").read_text() == "reached\n", host
    running = site.submit("login", "-w", "n1", "--wrap", "while ! test -e /run/go; do sleep 0.1; done")
    site.wait("login", running, "RUNNING")
    site["login"].start("slurmrestd", "unix:/run/rest", SLURM_CONF=site.conf, SLURMRESTD_SECURITY="disable_user_check")
    eventually(site.serves_rest, "slurmrestd serves")
    assert site.rest_pings() == {"ctl1": True, "ctl2": True}

    site["ctl1"].crash()
    job = site.submit("login", "-w", "n2", "--wrap", "true")
    site.wait("login", job, "COMPLETED")
    assert site.state("ctl2", running) == "RUNNING", "it did not notice"
    assert "Slurmctld(primary) at ctl1 is DOWN\nSlurmctld" in site.ping("login")
    assert "scontrol: ctl1: Connection refused\n" in site.ping("login")
    assert site.rest_pings() == {"ctl1": False, "ctl2": True}
    assert site.out("login", "srun", "-w", "ctl2", "hostname") == "ctl2\n", "the leader's own node takes its launches"
    assert "n2" in site.out("ctl2", "spritz", "token", "list"), "who has joined is known"
    assert (site["ctl2"].own / "run/programs").read_text() == "on\n"

    # The machine returns, and stands by; its users are led to the other.
    site.begin("ctl1")
    assert site.out("ctl1", "squeue", "-h", "-o", "%i").split() == [str(running)]
    done = site["login"].run("scontrol", "takeover", "0", SLURM_CONF=site.conf)
    assert done.returncode == 0, done.stderr
    eventually(lambda: site.ping("login") == both, "the first leads again, and the second stands by")
    assert (site["ctl2"].own / "run/programs").read_text() == "on\noff\n"
    (site["n1"].own / "run/go").touch()
    site.wait("ctl2", running, "COMPLETED")
    assert sorted(site.out("ctl2", "srun", "-w", "ctl2,n2", "-N2", "hostname").split()) == ["ctl2", "n2"]


def kill(site: Site, host: str) -> None:
    """Only its slurmctld, at once."""
    os.kill(int((site[host].own / "run/ctld.pid").read_text()), signal.SIGKILL)


@pytest.fixture
def users() -> Iterator[list[str]]:
    """root, and an ordinary user where others can run the installed commands."""
    if not others_can_run():
        yield ["root"]
        return
    with made_people("alice") as made:
        yield ["root", made["alice"].name]


def test_commands_on_the_machine_of_a_dead_controller_go_to_the_one_that_leads(site: Site, users: list[str]) -> None:
    """By sackd, by slurmd, and by none of them; and when slurmctld returns it serves its users itself again."""
    kill(site, "ctl1")
    eventually(lambda: "ctl2 leads" in site.ping("login"), "the other one leads")
    done = site["ctl1"].run("scontrol", "ping", SLURM_CONF=site.conf)
    assert done.stdout == "Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup) at ctl2 is UNKNOWN\n"
    assert "slurmctld, slurmd or sackd of this machine, and none of them runs: start one" in done.stderr
    done = site["ctl1"].run("scontrol", "takeover", SLURM_CONF=site.conf)
    assert done.stderr.startswith("slurm_takeover error: Unable to contact slurm controller (connect failure)\n")
    assert len(done.stderr.splitlines()) == 2, "and what to start"
    assert "Unknown from this machine: " in site["ctl1"].run("spritz", "status", SLURM_CONF=site.conf).stdout

    site.out("ctl1", "sackd")
    eventually(lambda: "ctl2 is UP" in site.ping("ctl1"), "sackd has the socket's name")
    commands_work(site, "ctl1", users)
    done = site["ctl1"].run("scontrol", "takeover", "0", SLURM_CONF=site.conf)
    assert done.stderr.startswith("slurm_takeover error: Unable to contact slurm controller (connect failure)\n")
    assert "slurmctld of ctl1 does not run" in done.stderr
    site.begin("ctl1")
    eventually(lambda: listens(site, "ctl1"), "the standby has the name again")
    assert site.ping("ctl1").startswith("Slurmctld(primary) at ctl1 is UP\nSlurmctld(backup) at ctl2 is UP\n")

    # On the other one slurmd runs, and a step, whose client is elsewhere.
    script = "echo begun; while read line; do echo $line; done; exit 7"
    running = site.begun("login", "running", "srun", "-w", "ctl2", "sh", "-c", script)
    eventually(lambda: "begun" in running.said(), "the step runs")
    kill(site, "ctl2")
    running.write("during\n")
    eventually(lambda: "during" in running.said(), "it has input by slurmd of its machine")
    assert running.status(60) == 7, running.said()
    eventually(lambda: "ctl2 is DOWN" in site.ping("ctl2"), "slurmd has the socket's name")
    assert "ctl1 is UP" in site.ping("ctl2")
    commands_work(site, "ctl2", users)
    site.begin("ctl2")
    eventually(lambda: listens(site, "ctl2"), "the standby has the name again")
    done = site["ctl2"].run("scontrol", "takeover", "1", SLURM_CONF=site.conf)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    eventually(lambda: listens(site, "ctl2"), "the leader has the name")
    commands_work(site, "ctl2", users)


def listens(site: Site, host: str) -> bool:
    """Whether slurmctld of a machine listens at both names: for commands, and for step supervisors."""
    listeners = site[host].do("ss", "-xlpH")
    return {
        (what, owner)
        for what, owner in re.findall(r'@spritz/(slurmctld|streams)/several/.*users:\(\("([a-z]+)"', listeners)
    } == {("slurmctld", "slurmctld"), ("streams", "slurmctld")}


def commands_work(site: Site, host: str, users: list[str]) -> None:
    """Reading, submitting, running and administering; without waiting for a controller that does not come."""
    for user in users:
        for words in (("squeue",), ("sinfo",), ("sbatch", "-o", "/dev/null", "--wrap", "true"), ("spritz", "status")):
            site[host].out(*words, user=user, SLURM_CONF=site.conf)
        assert site[host].out("srun", "-w", "n1", "hostname", user=user, SLURM_CONF=site.conf) == "n1\n"
        doctor = site[host].run("spritz", "doctor", user=user, SLURM_CONF=site.conf).stdout
        assert "the controller does not answer" not in doctor
    for state in ("drain", "resume"):
        site.out(host, "scontrol", "update", "nodename=n2", f"state={state}", "reason=test")
    if users[1:]:
        words = ("scontrol", "update", "nodename=n2", "state=drain", "reason=x")
        done = site[host].run(*words, user=users[1], SLURM_CONF=site.conf)
        assert done.returncode == 1


def test_a_leader_that_is_cut_off_stops_and_writes_nothing(site: Site) -> None:
    """The network between the leader and all others is gone, and comes back."""
    first = site.submit("login", "--wrap", "true")
    site.wait("login", first, "COMPLETED")
    site.lan.cut(site["ctl1"])
    job = site.submit("login", "-w", "n1", "--wrap", "true")
    site.wait("login", job, "COMPLETED")
    eventually(lambda: "daemon.deposed" in site.log("ctl1"), "the leader that is cut off stops")
    alone = site["ctl1"].run("sbatch", "--wrap", "true", SLURM_CONF=site.conf, timeout=100)
    assert alone.returncode == 1
    assert "standby" in alone.stderr, alone.stderr
    site.lan.mend(site["ctl1"])
    eventually(lambda: f"{job}" in site.out("ctl1", "scontrol", "show", "jobs"), "its users are led to the other")
    jobs = site.out("login", "scontrol", "-o", "show", "jobs").splitlines()
    assert len(jobs) == 2, "nothing doubled"
    done = site["login"].run("scontrol", "shutdown", SLURM_CONF=site.conf)
    assert done.returncode == 0, done.stderr
    eventually(lambda: "daemon.stopped standby" in site.log("ctl1"), "the standby has stopped too")


def test_a_leader_that_hangs_is_left(site: Site) -> None:
    """Its machine still accepts connections, so that a daemon that tries it first waits for an answer."""
    first = site.submit("login", "--wrap", "true")
    site.wait("login", first, "COMPLETED")
    hung = int((site["ctl1"].own / "run/ctld.pid").read_text())
    os.kill(hung, signal.SIGSTOP)
    try:
        for host in ("login", "n1"):
            site.wait(host, site.submit(host, "-w", "n1", "--wrap", "true"), "COMPLETED")
    finally:
        os.kill(hung, signal.SIGCONT)
    eventually(lambda: site.leads("ctl2"), "the controller that hung stands by")


def test_users_on_other_machines_are_told_that_the_database_is_away(site: Site) -> None:
    site.lan.cut(site["db"])
    eventually(lambda: "none leads: " in site.ping("login"), "the controllers stand by")
    eventually(lambda: "ctl2 stands by: cannot use postgresql://" in site.ping("login"), "the standby says why")
    assert "another machine" not in site.ping("login")
    site.lan.mend(site["db"])
    site.wait("login", site.submit("login", "--wrap", "true"), "COMPLETED")


def test_an_srun_between_machines_outlives_the_leader(site: Site) -> None:
    """One that runs, with input and output on the way, and one that waits for its node."""
    script = "echo begun $SLURM_PROCID; while read line; do echo $SLURM_PROCID $line; done; echo ended; exit 7"
    running = site.begun("login", "running", "srun", "-N2", "-w", "n1,n2", "-i", "all", "sh", "-c", script)
    eventually(lambda: running.said().count("begun") == 2, "the step runs")
    waiting = site.begun("login", "waiting", "srun", "-w", "n1", "sh", "-c", "echo at last; hostname")
    eventually(lambda: "PENDING" in site.out("login", "squeue", "-h", "-o", "%T"), "the other one waits")
    running.write("before\n")
    eventually(lambda: running.said().count("before") == 2, "it has input")

    site["ctl1"].crash()
    running.write("during\n")
    eventually(lambda: running.said().count("during") == 2, "and has it from the next leader on")
    site.submit("login", "--wrap", "true")
    running.write("after\n" * 5000)
    assert running.status(60) == 7, running.said()
    lines = sorted(running.said().splitlines())
    given = ["before", "during", *["after"] * 5000]
    expected = [line for rank in "01" for line in (f"begun {rank}", "ended", *[f"{rank} {word}" for word in given])]
    assert [line for line in lines if not line.startswith("srun:")] == sorted(expected), "nothing lost, nothing twice"
    assert waiting.status(60) == 0, waiting.said()
    assert "at last\nn1\n" in waiting.said()
    # The way back, by the order of an administrator, with a step that is in the middle of its output.
    site.begin("ctl1")
    eventually(lambda: "ctl1 is UP" in site.ping("login"), "the first stands by")
    writing = site.begun("login", "writing", "srun", "-w", "n2", "sh", "-c", "seq 400000; sleep 3; seq 400000")
    eventually(lambda: "\n100000\n" in writing.said(), "it writes")
    done = site["login"].run("scontrol", "takeover", "0", SLURM_CONF=site.conf)
    assert done.returncode == 0, done.stderr
    assert writing.status(90) == 0, writing.said()[-2000:]
    numbers = [line for line in writing.said().splitlines() if not line.startswith("srun:")]
    assert numbers == [*map(str, range(1, 400_001))] * 2


def test_submissions_that_are_under_way_when_the_leader_dies_are_queued_once(site: Site) -> None:
    """From a login host, a node and the standby's machine; the power fails at another moment each time."""
    names = []
    for leader, moment in (("ctl1", 0), ("ctl2", 6), ("ctl1", 12)):
        other = "ctl2" if leader == "ctl1" else "ctl1"
        begun = []
        for number in range(18):
            host = ("login", "n1", other)[number % 3]
            names.append(f"from-{leader}-{moment}-{number}")
            words = ("sbatch", "--parsable", "-H", "-J", names[-1], "-o", "/dev/null", "--wrap", "true")
            log = f"{names[-1]}.out"
            begun.append((site[host].start(*words, log=log, SLURM_CONF=site.conf), site[host].own / log))
            if number == moment:
                wait_for_an_answer([path for _, path in begun])  # some have none, some have not been sent
                site[leader].crash()
        for child, path in begun:
            assert child.wait(60) == 0, path.read_text()
        rows = site.out(other, "squeue", "-h", "-o", "%j").split()
        assert sorted(rows) == sorted(names), "each once"
        site.begin(leader)
        wait_until_up(site, leader)


def wait_for_an_answer(outputs: list[Path]) -> None:
    eventually(lambda: any(path.read_text() for path in outputs), "a submission is answered")


def wait_until_up(site: Site, host: str) -> None:
    eventually(lambda: f"{host} is UP" in site.ping("login"), "it stands by")
