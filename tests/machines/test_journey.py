"""A cluster of several machines as its users meet it: join, run, look, reconfigure, reboot, leave."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from pathlib import Path

import pytest

from spritz.installed import closed_on_the_way
from tests.e2e.people import Person
from tests.machines.conftest import joined
from tests.machines.lan import Lan, Machine, eventually
from tests.machines.systemd import NODE_UNIT, Systemd, checked, token

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("machines")]


@pytest.mark.slow
def test_up_prints_one_line_that_joins_another_machine(lan: Lan, alpha: Machine) -> None:
    last = alpha.out("spritz", "up", "--listen", alpha.address).splitlines()[-1]
    assert re.fullmatch(r"spritz join 10\.77\.0\.1:\d+ --token \S+", last)
    zeta = lan.machine("zeta")
    assert "as node zeta" in zeta.out(*last.split())
    assert alpha.out("srun", "-w", "zeta", "hostname") == "zeta\n"
    assert zeta.out("srun", "-w", "alpha", "hostname") == "alpha\n"
    zeta.out("spritz", "down")
    assert f"listens on {alpha.address}" in alpha.run("spritz", "up", "--listen", "10.9.9.9").stderr


def test_commands_work_on_every_machine(alpha: Machine, beta: Machine, gamma: Machine) -> None:
    for machine in (alpha, beta, gamma):
        assert "beta" in machine.out("sinfo", "-hN", "-o", "%N")
        assert machine.out("scontrol", "ping").startswith("Slurmctld(primary) at alpha is UP")
    number = gamma.out("sbatch", "--parsable", "-w", "beta", "-o", str(beta.own / "out"), "--wrap", "hostname").strip()
    eventually(lambda: "COMPLETED" in alpha.out("scontrol", "show", "job", number), "the job ends")
    assert (beta.own / "out").read_text() == "beta\n"
    eventually(lambda: gamma.out("sacct", "-nX", "-j", number, "-o", "state").strip() == "COMPLETED", "sacct knows it")


def test_srun_between_machines(beta: Machine, gamma: Machine) -> None:
    assert sorted(gamma.out("srun", "-N2", "-l", "-w", "alpha,beta", "hostname").split()) == [
        "0:",
        "1:",
        "alpha",
        "beta",
    ]
    assert gamma.run("srun", "-w", "beta", "cat", stdin="one\ntwo\n").stdout == "one\ntwo\n"
    assert gamma.run("srun", "-w", "beta", "sh", "-c", "echo no >&2; exit 7").returncode == 7
    assert gamma.run("srun", "-w", "beta", "sh", "-c", "echo no >&2; exit 7").stderr.startswith("no\n")
    done = gamma.run("script", "-qec", "srun --pty -w beta sh -c 'tty; stty size'", "/dev/null")
    assert "/dev/pts/" in done.stdout
    big = gamma.out("srun", "-w", "beta", "head", "-c", "3000000", "/dev/zero")
    assert len(big) == 3_000_000


@pytest.mark.slow
def test_sattach_and_sbcast_between_machines(beta: Machine, gamma: Machine) -> None:
    source, target = gamma.own / "file", beta.own / "copied"
    source.write_text("of gamma")
    done = gamma.run("salloc", "-w", "beta", "sbcast", str(source), str(target))
    assert (done.returncode, target.read_text()) == (0, "of gamma")
    holder = gamma.start("srun", "-w", "beta", "sh", "-c", "while :; do echo tick; sleep 0.2; done")
    eventually(lambda: gamma.out("squeue", "-hs", "-n", "sh"), "the step of srun runs")
    step = gamma.out("squeue", "-hs", "-n", "sh", "-o", "%i").split()[0]
    seen = gamma.run("timeout", "--signal=INT", "3", "sattach", step).stdout
    assert "tick" in seen
    gamma.out("scancel", step.partition(".")[0])
    holder.wait(30)


def test_users_are_themselves_on_every_machine(
    alpha: Machine, beta: Machine, gamma: Machine, people: dict[str, Person]
) -> None:
    alice, bob = people["alice"].name, people["bob"].name
    conf = {"SLURM_CONF": ""}
    assert gamma.out("srun", "-w", "beta", "id", "-un", user=alice, **conf) == f"{alice}\n"
    number = gamma.out(
        "sbatch", "--parsable", "-w", "beta", "-o", "/dev/null", "--wrap", "sleep 60", user=alice
    ).strip()
    refused = gamma.run("scancel", number, user=bob)
    assert "Access/permission denied" in refused.stderr
    refused = gamma.run("scontrol", "update", "nodename=beta", "state=drain", "reason=x", user=bob)
    assert "Invalid user id" in refused.stderr
    gamma.out("scancel", number, user=alice)


def test_the_files_of_roots_cluster_are_open_to_all_users(alpha: Machine) -> None:
    """Commands follow the link; batch jobs execute their script in the spool."""
    assert os.readlink(alpha.own / "run/slurm/conf") == str(alpha.own / "lib/default/etc")
    assert not closed_on_the_way(str(alpha.own / "lib/default/spool/alpha"))


@pytest.mark.slow
def test_users_of_the_controllers_machine_are_users_of_the_cluster(
    alpha: Machine, gamma: Machine, people: dict[str, Person]
) -> None:
    """`spritz up` by root: others' commands find the cluster, and their batch scripts can be read there."""
    alice = people["alice"]
    assert "alpha" in alpha.out("sinfo", "-hN", "-o", "%N", user=alice.name)
    for machine in (alpha, gamma):
        output = alice.home / f"from-{machine.name}"
        words = ("sbatch", "--wait", "-w", "alpha", "-o", str(output), "--wrap", "id -un")
        machine.out(*words, user=alice.name)
        assert output.read_text() == f"{alice.name}\n"


def test_a_joined_machine_makes_a_cluster_of_its_own_only_elsewhere(gamma: Machine) -> None:
    refused = gamma.run("spritz", "up", "--listen", gamma.address)
    assert "has joined a cluster as login" in refused.stderr
    assert "--dir" in refused.stderr
    assert "alpha" in gamma.out("sinfo", "-hN", "-o", "%N")


def test_reconfigure_reaches_every_machine(alpha: Machine, beta: Machine, gamma: Machine) -> None:
    conf = next(alpha.own.rglob("etc/slurm.conf"))
    conf.write_text(conf.read_text() + "KillWait=17\n")
    alpha.out("scontrol", "reconfigure")
    for machine in (beta, gamma):
        eventually(partial(_has_it, machine), f"{machine.name} has the configuration")
    assert f"SlurmdSpoolDir={beta.own}" in (beta.own / "lib/default/etc/slurm.conf").read_text()


def _has_it(machine: Machine) -> bool:
    return "KillWait=17" in (machine.own / "lib/default/etc/slurm.conf").read_text()


def test_a_node_returns_after_a_reboot(alpha: Machine, beta: Machine) -> None:
    beta.crash()
    eventually(lambda: "beta" in alpha.out("sinfo", "-hN", "-t", "no_respond,down", "-o", "%N"), "beta is missed")
    beta.out("spritz", "join")
    eventually(lambda: alpha.run("srun", "-w", "beta", "hostname").stdout == "beta\n", "beta is back")


@pytest.mark.slow
def test_a_node_keeps_the_keys_that_it_joined_with(lan: Lan, alpha: Machine) -> None:
    """GPUs that no one detects, above all. The controller's machine needs none for that."""
    omicron = lan.machine("omicron")
    words = alpha.out("spritz", "token", "create", "--uses", "1").split()
    omicron.out(*words, "--conf", "Gres=gpu:a100:2 Features=x")
    shown = ("sinfo", "-hN", "-n", "omicron", "-o", "%G %f")
    assert alpha.out(*shown) == "gpu:a100:2 x\n"
    omicron.crash()
    omicron.out("spritz", "join")
    assert alpha.out(*shown) == "gpu:a100:2 x\n"
    refused = omicron.run("spritz", "join", "--conf", "Gres=gpu:a100:2 Features=y")
    assert "the node's daemon runs already" in refused.stderr
    omicron.out("spritz", "down")
    omicron.out("spritz", "join", "--conf", "Gres=gpu:a100:2 Features=y")
    assert alpha.out(*shown) == "gpu:a100:2 y\n"
    omicron.out("spritz", "down")


@pytest.mark.slow
def test_a_node_that_slurm_conf_has_no_more_returns_with_what_it_has(lan: Lan, alpha: Machine) -> None:
    lambda_ = joined(alpha, lan.machine("lambda"))
    (conf,) = alpha.own.rglob("slurm.conf")
    before = conf.read_text()
    conf.write_text(before + "NodeName=lambda CPUs=1 RealMemory=100\n")
    alpha.out("scontrol", "reconfigure")
    fetched = lambda_.own / "lib/default/etc/slurm.conf"
    eventually(lambda: "NodeName=lambda" in fetched.read_text(), "the machine has the file")
    lambda_.crash()
    conf.write_text(before)
    alpha.out("scontrol", "reconfigure")
    lambda_.out("spritz", "join")
    assert alpha.out("srun", "-w", "lambda", "hostname") == "lambda\n"


def test_a_node_behind_a_router(lan: Lan, alpha: Machine, gamma: Machine) -> None:
    delta = joined(alpha, lan.machine("delta", behind_nat=True))
    assert gamma.run("srun", "-w", "delta", "cat", stdin="there and back").stdout == "there and back"
    assert delta.out("srun", "-w", "alpha", "hostname") == "alpha\n"
    delta.out("spritz", "down")


@pytest.mark.slow
def test_a_join_that_fails_leaves_neither_a_node_nor_a_link(lan: Lan, alpha: Machine) -> None:
    rho = lan.machine("rho")
    (conf,) = alpha.own.rglob("etc/slurm.conf")
    port = re.search(r"^SlurmdPort=(\d+)", conf.read_text(), re.MULTILINE)
    assert port is not None
    script = f"import socket, time; taken = socket.create_server(('', {port[1]})); time.sleep(1000)"
    taker = rho.start("python3", "-c", script)
    eventually(lambda: f":{port[1]} " in rho.out("ss", "-Hltn"), "the port is taken")
    failed = rho.run(*alpha.out("spritz", "token", "create", "--role", "node", "--uses", "1").split())
    assert failed.returncode == 1
    assert f"Unable to bind listen port ({port[1]})" in failed.stderr
    assert "once that is mended, `spritz join`" in failed.stderr
    assert "rho" not in alpha.out("sinfo", "-hN", "-o", "%N")
    assert not os.path.lexists(rho.own / "run/slurm/conf")
    taker.kill()
    taker.wait()
    eventually(lambda: f":{port[1]} " not in rho.out("ss", "-Hltn"), "the port is free")
    rho.out("spritz", "join")
    assert alpha.out("srun", "-w", "rho", "hostname") == "rho\n"
    rho.out("spritz", "down")


@pytest.mark.slow
def test_tokens_are_limited(lan: Lan, alpha: Machine) -> None:
    eta = lan.machine("eta")
    once = alpha.out("spritz", "token", "create", "--uses", "1", "--role", "login", "--host", "other").split()
    assert "is for machine other, not eta" in eta.run(*once).stderr
    brief = alpha.out("spritz", "token", "create", "--role", "login", "--lifetime", "1", "--host", "other").split()
    address, token = once[2], once[4]
    wrong = token[:12] + ("A" if token[12] != "A" else "B") + token[13:]
    assert "not one of this cluster's" in eta.run("spritz", "join", address, "--token", wrong).stderr
    foreign = token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB")
    assert "not of the cluster that the token is for" in eta.run("spritz", "join", address, "--token", foreign).stderr
    number = next(line.split()[0] for line in alpha.out("spritz", "token", "list").splitlines() if "other" in line)
    alpha.out("spritz", "token", "revoke", number)
    assert "was revoked" in eta.run(*once).stderr
    assert alpha.run("spritz", "token", "create", "--lifetime", "never").returncode == 1
    node = alpha.out("spritz", "token", "create", "--role", "node", "--uses", "1").split()
    eta.out(*node)
    assert "used 1 times" in lan.machine("xi").run(*node).stderr
    eventually(lambda: "has expired" in eta.run(*brief).stderr, "the token expires")
    eta.out("spritz", "down")


@pytest.mark.slow
def test_a_node_joins_as_the_user_of_the_cluster(lan: Lan, people: dict[str, Person]) -> None:
    """A cluster of an ordinary user: root's refused join costs neither a use of the token nor the name."""
    first, second = lan.machine("pi"), lan.machine("sigma")
    alice = people["alice"].name
    begun = first.out("spritz", "up", "--listen", first.address, "--dir", "/tmp/cluster", user=alice)
    conf = {"SLURM_CONF": "/tmp/cluster/etc/slurm.conf"}
    line = first.out("spritz", "token", "create", "--uses", "1", user=alice, **conf).split()
    assert begun.splitlines()[-1].split()[:3] == line[:3]
    refused = second.run(*line)
    assert refused.returncode == 1
    assert f"nodes of this cluster belong to {alice} (SlurmdUser), not root: join as {alice}" in refused.stderr
    assert not os.path.lexists(second.own / "run/slurm/conf")
    assert "as node sigma" in second.out(*line, "--dir", "/tmp/node", user=alice)
    assert first.out("srun", "-w", "sigma", "hostname", user=alice, **conf) == "sigma\n"
    second.out("spritz", "down", "--dir", "/tmp/node", user=alice)
    first.out("spritz", "down", "--dir", "/tmp/cluster", user=alice)


@pytest.mark.slow
def test_a_revoked_machine_is_out(lan: Lan, alpha: Machine) -> None:
    theta = joined(alpha, lan.machine("theta"), "login")
    theta.out("sinfo")
    alpha.out("spritz", "token", "revoke", "--host", "theta")
    eventually(lambda: "machine theta was revoked" in theta.run("sinfo").stderr, "theta is told")
    assert "machine theta was revoked" in theta.run("sbatch", "--wrap", "true").stderr
    again = alpha.out("spritz", "token", "create", "--role", "login", "--host", "theta").split()
    theta.out("spritz", "down")
    theta.out(*again)
    theta.out("sinfo")


@pytest.mark.slow
def test_a_revoked_node_is_down_at_once(lan: Lan, alpha: Machine) -> None:
    iota = joined(alpha, lan.machine("iota"))
    assert "idle" in alpha.out("sinfo", "-hN", "-n", "iota", "-o", "%T")
    alpha.out("spritz", "token", "revoke", "--host", "iota")
    assert alpha.out("sinfo", "-hN", "-n", "iota", "-o", "%T").strip() == "down*"
    assert "Reason=Certificate of iota revoked" in alpha.out("scontrol", "show", "node", "iota")
    iota.out("spritz", "down")
    assert "machine iota was revoked; to let it join again: spritz token" in iota.run("spritz", "join").stderr


@pytest.mark.slow
def test_a_revoked_node_stays_down_over_a_restart_until_it_joins_again(lan: Lan) -> None:
    """With ReturnToService=1, where only silent nodes return by themselves."""
    first, second = lan.machine("kappa"), lan.machine("nu")
    first.out("spritz", "up", "--listen", first.address)
    shown = dict(re.findall(r"(?m)^(\w+) += (.*)$", first.out("scontrol", "show", "config")))
    conf, pid = Path(shown["SLURM_CONF"]), int(Path(shown["SlurmctldPidFile"]).read_text())
    conf.write_text(conf.read_text().replace("ReturnToService=2", "ReturnToService=1"))
    joined(first, second)
    first.out("spritz", "token", "revoke", "--host", "nu")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "slurmctld has ended")
    first.out("slurmctld", SLURM_CONF=str(conf))
    assert "Reason=Certificate of nu revoked" in first.out("scontrol", "show", "node", "nu")
    assert first.out("sinfo", "-hN", "-n", "nu", "-o", "%T").strip() == "down*"
    assert "as node nu" in second.out(*first.out("spritz", "token", "create", "--role", "node").split())
    assert first.out("srun", "-w", "nu", "hostname") == "nu\n"
    log = conf.parent.with_name("log").joinpath("slurmctld.log").read_text()
    assert log.count("error: machine.refused") <= 2, "a line for each peer and minute in each life of the controller"
    for machine in (second, first):
        machine.out("spritz", "down")


@pytest.mark.slow
def test_a_node_that_is_cut_off_is_marked_and_returns(alpha: Machine, beta: Machine) -> None:
    assert alpha.out("srun", "-w", "beta", "hostname") == "beta\n"
    beta.drop(alpha.address)
    try:
        eventually(lambda: alpha.out("sinfo", "-hN", "-n", "beta", "-o", "%T").strip() == "idle*", "beta is missed")
    finally:
        beta.admit()
    eventually(lambda: alpha.run("srun", "-w", "beta", "hostname").stdout == "beta\n", "beta is back")


def test_tokens_are_made_on_the_controllers_machine_alone(beta: Machine, gamma: Machine) -> None:
    assert "on the controller's machine" in beta.run("spritz", "token", "create").stderr
    assert "on the controller's machine" in gamma.run("spritz", "token", "list").stderr


def test_a_node_of_systemd_comes_back_with_its_machine(lan: Lan, alpha: Machine) -> None:
    machine = lan.machine("mu")
    systemd = Systemd(machine)
    done = systemd.join(*token(alpha, "node"))
    assert done.returncode == 0, done.stderr
    assert "as node mu" in done.stdout
    checked(systemd.units / NODE_UNIT)
    assert alpha.out("srun", "-w", "mu", "hostname") == "mu\n"
    before = systemd.life(NODE_UNIT)
    systemd.boot()
    assert systemd.life(NODE_UNIT) != before
    eventually(lambda: alpha.out("sinfo", "-hn", "mu", "-o", "%T") == "idle\n", "the node is back")
    assert alpha.out("srun", "-w", "mu", "hostname") == "mu\n"
    assert machine.out("sinfo", "-hn", "mu", "-o", "%N") == "mu\n", "its commands find the cluster again"
