"""Two controllers over one PostgreSQL: one leads, the other takes over, and nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest

from spritz.client.command.sync import connect_address, submit_key
from spritz.client.errors import ClientError, RemoteError
from spritz.controller.journal.postgresql import Store
from spritz.model.commands.job import JobSubmitted
from tests.conformance.databases import Server, reason, server
from tests.e2e.cluster import BIN, until
from tests.e2e.controllers import HOSTS, Controllers

pytestmark = pytest.mark.skipif(bool(reason("postgresql")), reason=reason("postgresql"))


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Server]:
    with server("postgresql") as running:
        yield running


@pytest.fixture
def pair(postgresql: Server) -> Iterator[Controllers]:
    found = Controllers(postgresql)
    try:
        yield found.begin_both()
    finally:
        found.close()


def command(pair: Controllers, *words: str, seconds: float = 100.0) -> subprocess.CompletedProcess[str]:
    """A command of a user, with the slurm.conf that has both hosts."""
    environment = {"PATH": f"{BIN}:/usr/bin:/bin", "SLURM_CONF": str(pair.conf)}
    return subprocess.run(
        [str(BIN / words[0]), *words[1:]],
        env=environment,
        cwd=pair.work,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def test_a_standby_takes_over_from_a_killed_controller_and_hands_back(pair: Controllers) -> None:
    ping = command(pair, "scontrol", "ping")
    assert ping.stdout == "Slurmctld(primary) at ctl1 is UP\nSlurmctld(backup) at ctl2 is UP\n"
    with connect_address((HOSTS["ctl2"], pair.port), timeout=100, owners=pair.owners) as connection:
        with pytest.raises(RemoteError, match="Slurm backup controller in standby mode") as refused:
            connection.call(pair.request(), JobSubmitted)
        assert refused.value.hint == "ctl1 leads (127.0.0.1)"
    pair.signal("ctl2", signal.SIGUSR2)
    pair.signal("ctl2", signal.SIGHUP)
    until(lambda: "standby.reloaded leader=ctl1" in pair.log_of("ctl2"), "the standby has read its certificate")

    running = pair.submit("while ! test -e go; do sleep 0.1; done; echo done")
    until(lambda: pair.job(running).state.value == "RUNNING", "the job runs")
    environment = {"PATH": f"{BIN}:/usr/bin:/bin", "SLURM_CONF": str(pair.conf)}
    srun = subprocess.Popen(
        [str(BIN / "srun"), "sh", "-c", "touch began; while ! test -e go; do sleep 0.1; done; echo survived"],
        env=environment,
        cwd=pair.work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until(lambda: (pair.work / "began").exists(), "srun's task runs")

    pair.kill("ctl1")
    submitted = command(pair, "sbatch", "--wrap", "true")  # it waits for the other controller by itself
    assert submitted.returncode == 0, submitted.stderr
    assert pair.leading() == "ctl2"
    number = int(submitted.stdout.split()[-1])
    assert pair.wait_state(number, "COMPLETED").id == number
    assert pair.job(running).state.value == "RUNNING", "it did not notice"
    ping = command(pair, "scontrol", "ping")
    assert ping.stdout == "Slurmctld(primary) at ctl1 is DOWN\nSlurmctld(backup) at ctl2 is UP\n"

    pair.begin("ctl1")
    assert pair.leading() == "ctl2", "who comes back stands by"
    back = command(pair, "scontrol", "takeover", "0")
    assert back.returncode == 0, back.stderr
    assert pair.leading() == "ctl1"
    until(lambda: (pong := pair.pong("ctl2")) is not None and not pong.leading, "the deposed one stands by")
    assert pair.ctl["ctl2"].poll() is None, "in the same process"

    (pair.work / "go").touch()
    pair.wait_state(running, "COMPLETED")
    assert pair.output(running) == "done\n"
    assert srun.communicate(timeout=100)[0] == "survived\n"
    assert srun.returncode == 0

    assert command(pair, "scontrol", "shutdown").returncode == 0
    for name in HOSTS:
        assert pair.ctl[name].wait(100) == 0, "all controllers stop"


def test_several_hosts_without_postgresql_are_refused(pair: Controllers) -> None:
    text = pair.conf.read_text()
    lines = [line for line in text.splitlines() if not line.startswith("SlurmctldParameters")]
    other = pair.conf.with_name("shared.conf")
    other.write_text("\n".join(lines))
    done = pair.run("slurmctld", "-D", "-f", str(other))
    assert done.returncode == 1
    assert "2 SlurmctldHost lines need SlurmctldParameters=journal=postgresql://" in done.stderr
    assert "cannot keep a deposed one from writing" in done.stderr
    other.write_text(text)
    done = pair.run("slurmctld", "-D", "-f", str(other), "-N", "ctl9")
    assert "This host (ctl9) not a valid controller" in done.stderr


@pytest.mark.slow
def test_a_stopped_controller_is_deposed_and_writes_nothing(pair: Controllers) -> None:
    """SIGSTOP: its connections stay, it tells nothing, and when it goes on it finds that another leads."""
    first = pair.submit("true")
    pair.signal("ctl1", signal.SIGSTOP)
    until(lambda: pair.leads("ctl2"), "the standby leads")
    submitted = command(pair, "sbatch", "--wrap", "true")
    assert submitted.returncode == 0, submitted.stderr
    number = int(submitted.stdout.split()[-1])
    pair.wait_state(number, "COMPLETED")
    store = Store(pair.url, pair.name, patience_seconds=5.0)
    before = store.lease()
    pair.signal("ctl1", signal.SIGCONT)
    until(lambda: "daemon.deposed" in pair.log_of("ctl1"), "the former leader says that it is deposed")
    until(lambda: (pong := pair.pong("ctl1")) is not None and not pong.leading, "it stands by")
    assert store.lease().term == before.term
    store.drop()
    assert {first, number} <= pair.jobs().keys()


@pytest.mark.slow
def test_a_database_that_is_away_for_a_while(pair: Controllers, postgresql: Server) -> None:
    """A restart of it is waited out; after the lease no controller leads, says why, and jobs run on."""
    running = pair.submit("while ! test -e go; do sleep 0.1; done")
    until(lambda: pair.job(running).state.value == "RUNNING", "the job runs")
    postgresql.stop()
    postgresql.start()
    number = pair.submit("true")
    pair.wait_state(number, "COMPLETED")
    assert pair.leading() == "ctl1", "a restart of the database moves nothing"

    postgresql.stop()
    until(lambda: all((pong := pair.pong(name)) is not None and pong.detail for name in HOSTS), "both stand by")
    refused = command(pair, "sbatch", "--wrap", "true")
    assert refused.returncode == 1
    assert "Slurm backup controller in standby mode" in refused.stderr
    assert "cannot use postgresql://" in refused.stderr
    (pair.work / "go").touch()
    postgresql.start()
    until(lambda: pair.leading(), "a controller leads again")
    assert pair.wait_state(running, "COMPLETED").id == running
    assert len(pair.jobs()) == 2, "nothing that was refused is queued"


def _grown(found: dict[str, int], before: int) -> bool:
    return len(found) > before


@pytest.mark.slow
def test_users_are_told_of_a_full_database_and_no_controller_leads(pair: Controllers) -> None:
    """Else controllers would lead one after another, each until its first event."""
    import psycopg

    schema = f"spritz_{pair.name}"
    full = f"""
        CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
        END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON {schema}.groups FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()
    """
    with psycopg.connect(pair.url.replace("+psycopg", ""), autocommit=True) as database:
        database.execute(full)
        refused = command(pair, "sbatch", "-H", "--wrap", "true")
        assert refused.returncode == 1
        assert "No space left on device" in refused.stderr
        assert pair.leading() == ""
        assert "No space left on device" in command(pair, "scontrol", "ping").stderr, "each stands by, and says why"
        database.execute(f"DROP TRIGGER full_disk ON {schema}.groups")
    until(lambda: pair.leading() != "", "a controller leads")
    assert command(pair, "sbatch", "-H", "--wrap", "true").returncode == 0


@pytest.mark.slow
def test_a_database_that_lost_its_last_events_is_read_again(pair: Controllers) -> None:
    """By the leader and by the standby, which had followed further: as after an asynchronous failover of PostgreSQL."""
    import psycopg

    def held() -> int:
        return int(command(pair, "sbatch", "--parsable", "-H", "--wrap", "true").stdout)

    def queued() -> list[int]:
        return sorted(int(word) for word in command(pair, "squeue", "-h", "-o", "%i").stdout.split())

    first = held()
    with psycopg.connect(pair.url.replace("+psycopg", ""), autocommit=True) as database:
        groups = f"spritz_{pair.name}.groups"
        (before,) = database.execute(f"SELECT max(last) FROM {groups}").fetchone() or (0,)
        lost = held()
        until(lambda: len(queued()) == 2, "both are queued")
        time.sleep(1)  # the standby looks four times a second, and shows no sign of it
        database.execute(f"DELETE FROM {groups} WHERE last > %s", (before,))
        database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        until(lambda: "which it had acknowledged" in pair.log_of("ctl1"), "the leader has noticed")
    until(lambda: pair.leading() != "", "a controller leads")
    assert queued() == [first]
    again = [held() for _ in range(3)]
    assert lost in again, "its number was never seen by the journal"
    other = 1 if pair.leading() == "ctl1" else 0
    done = command(pair, "scontrol", "takeover", str(other))
    assert done.returncode == 0, done.stderr
    assert queued() == [first, *again], "both controllers read the same"
    assert all(process.poll() is None for process in pair.ctl.values())


@pytest.mark.slow
def test_controllers_are_killed_again_and_again_under_load(pair: Controllers) -> None:
    """What must hold: each acknowledged submission is one job, none is doubled, terms rise, events have no gap."""
    rounds = int(os.environ.get("SPRITZ_FAILOVERS", "6"))
    chance = random.Random(20261123)
    acknowledged: dict[str, int] = {}
    tried: set[str] = set()
    over = threading.Event()

    def submit(worker: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            name, key = f"w{worker}-{number}", submit_key()
            request = pair.request("true", name=name)
            keyed = type(request)(
                spec=request.spec, script=request.script, environment=request.environment, submit_key=key
            )
            tried.add(name)
            while not over.is_set():  # asked again with the same key until it is known
                try:
                    with pair.connect(timeout=10.0) as connection:
                        acknowledged[name] = connection.call(keyed, JobSubmitted).job_id
                    break
                except ClientError:
                    time.sleep(0.05)

    threads = [threading.Thread(target=submit, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    store = Store(pair.url, pair.name, patience_seconds=5.0)
    terms = [store.lease().term]
    try:
        for _ in range(rounds):
            time.sleep(chance.uniform(0.1, 1.5))  # the instant of the kill is the random part
            victim = pair.leading() or "ctl1"
            other = next(name for name in HOSTS if name != victim)
            before = len(acknowledged)
            pair.kill(victim)
            until(partial(pair.leads, other), f"{other} leads")
            until(partial(_grown, acknowledged, before), "submissions go on")
            terms.append(store.lease().term)
            pair.begin(victim)
    finally:
        over.set()
        for thread in threads:
            thread.join(100)
    assert terms == sorted(set(terms)), "terms rise"
    jobs = pair.jobs()
    by_name: dict[str, list[int]] = {}
    for number, job in jobs.items():
        by_name.setdefault(job.spec.name, []).append(number)
    assert all(by_name.get(name) == [number] for name, number in acknowledged.items()), "each exists once"
    assert all(len(numbers) == 1 for numbers in by_name.values()), "none is doubled"
    assert by_name.keys() <= tried
    groups = list(store.groups(0))
    assert all(late.first == early.last + 1 for early, late in pairwise(groups))
    store.drop()
    pair.wait_all_ended(list(acknowledged.values()))


def test_a_standby_says_what_the_leaders_slurm_conf_has_otherwise(pair: Controllers) -> None:
    """It would end the jobs on nodes that it does not know."""
    conf = pair.conf_of("ctl2")
    text = conf.read_text()
    conf.write_text(text + "NodeName=another CPUs=1\n")
    told = "NodeName of slurm.conf here differs from that of ctl1"
    until(lambda: (pong := pair.pong("ctl2")) is not None and pong.detail == told, "the standby says so")
    ping = command(pair, "scontrol", "ping")
    assert f"ctl2 stands by for ctl1: {told}" in ping.stderr
    assert f"standby.differs detail='{told}'" in pair.log_of("ctl2")
    assert f"[WRONG ] controller ctl2: {told}\n" in command(pair, "spritz", "doctor").stdout
    # The leader gets the node too.
    pair.conf.write_text(pair.conf.read_text() + "NodeName=another CPUs=1\n")
    assert command(pair, "scontrol", "reconfigure").returncode == 0
    until(lambda: (pong := pair.pong("ctl2")) is not None and not pong.detail, "nothing differs")
    assert "[  ok  ] 2 controllers answer\n" in command(pair, "spritz", "doctor").stdout
    # A file with which the standby could not lead.
    conf.write_text(text + "NodName=typo\n")
    until(lambda: (pong := pair.pong("ctl2")) is not None and "NodName" in pong.detail, "the standby names the mistake")
    pair.kill("ctl2")
    assert "[WRONG ] controller ctl2 does not answer: Connection refused\n" in command(pair, "spritz", "doctor").stdout


def test_a_standby_with_another_key_does_not_start(postgresql: Server) -> None:
    """Nodes would not accept it as the leader."""
    found = Controllers(postgresql)
    try:
        other = found.root / "other"
        other.mkdir()
        for directory in (found.conf.parent, other):
            key = directory / "slurm.key"
            key.write_bytes(os.urandom(64))
            key.chmod(0o600)
        found.begin("ctl1")
        until(lambda: found.leading() == "ctl1", "ctl1 leads")
        conf = other / "slurm.conf"
        conf.write_text(found.conf_of("ctl2").read_text())
        done = found.run("slurmctld", "-D", "-N", "ctl2", "-f", str(conf))
        assert done.returncode == 1
        assert f"the cluster's key next to {conf} is not that of ctl1, which leads" in done.stderr
        # Once the leader is gone its key does not count: the key of all machines may have been replaced.
        found.kill("ctl1")
        found.conf_of("ctl2").unlink()
        os.symlink(conf, found.conf_of("ctl2"))
        os.replace(other / "slurm.key", found.conf.parent / "slurm.key")
        found.begin("ctl2")
        until(lambda: found.leads("ctl2"), "ctl2 leads")
    finally:
        found.close()
