"""Odd requests of an ordinary user to a whole cluster: nothing that can be sent stops it.

Seeded: the same requests each time, unless SPRITZ_FUZZ_SEED says otherwise (`make fuzz` draws one); SPRITZ_FUZZ_ROUNDS
rounds of requests. As root, the requests are another user's; else they are SlurmUser's own, without those that stop
daemons or write files. Every round must leave the daemons alive and answering; at the end no traceback is in a log,
slurmdbd has every event, commands can show what there is, and a controller that is killed comes back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from random import Random

import pytest
from msgspec import Struct

from spritz.client.locate import controller_socket_name, database_socket_name
from spritz.model.commands.job import SubmitHetJob, SubmitJob
from spritz.model.job.record import JobSpec
from spritz.model.queries.diagnostics import Diagnostics, GetDiagnostics
from tests.e2e.cluster import PATIENCE_SECONDS, Cluster, until, user_name
from tests.e2e.users import NOBODY, as_user
from tests.fuzz import taken
from tests.fuzz.odd import Odd
from tests.fuzz.peer import Message, exchange
from tests.ports import free_port

SEED = int(os.environ.get("SPRITZ_FUZZ_SEED", "1"))
ROUNDS = int(os.environ.get("SPRITZ_FUZZ_ROUNDS", "24"))
#: Requests of one round go on one connection to each daemon.
ROUND_SIZE = 40

#: What SlurmUser is not to send to himself: it ends daemons, or writes and runs files.
UNWANTED = {"Shutdown", "ShutdownDatabase", "ArchiveDump", "ArchiveLoad", "RebootNodes", "PauseScheduling", "SetDebug"}

#: Fields for which most users are refused at once.
RIGHTS = {"uid", "gid", "priority", "nice", "reboot"}

NODES = """\
NodeName=n1 NodeAddr=127.0.0.1 CPUs=8 Sockets=2 CoresPerSocket=4 RealMemory=8000 Feature=a
NodeName=n2 NodeAddr=127.0.0.1 CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=8000 Feature=b,c"""
PARTITIONS = """\
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=other Nodes=n1 MaxTime=60 DefaultTime=5 OverSubscribe=FORCE:3 State=UP"""


class Target:
    """A cluster with accounting."""

    def __init__(self) -> None:
        self.database_port = free_port()
        self.cluster = Cluster(
            nodes=2,
            node_lines=NODES,
            partition_lines=PARTITIONS,
            extra="AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={self.database_port}\nAccountingStoreFlags=job_script,job_env\n"
            "FirstJobId=1\nMinJobAge=30\nMaxArraySize=1001\nLicenses=a:2,b:1\nMailProg=/bin/true\n",
        )
        root = self.cluster.root
        self.conf = self.cluster.conf.with_name("slurmdbd.conf")
        self.conf.write_text(
            f"DbdPort={self.database_port}\nSlurmUser={user_name()}\nPidFile={root}/slurmdbd.pid\n"
            f"LogFile={root}/slurmdbd.log\nStorageType=accounting_storage/sqlite\nStorageLoc={root}/acct.db\n"
        )
        self.conf.chmod(0o600)
        self.database: subprocess.Popen[bytes] | None = None

    @property
    def addresses(self) -> dict[str, str]:
        """Of each daemon that users may speak to."""
        return {
            "slurmctld": controller_socket_name(self.cluster.name, self.cluster.port),
            "slurmdbd": database_socket_name(self.database_port),
        }

    def start(self) -> None:
        """All daemons; returns when they are usable."""
        with open(self.cluster.root / "slurmdbd.stderr", "ab") as stderr:
            self.database = subprocess.Popen(
                [sys.executable, "-m", "spritz.accounting.main", "-D", "-f", str(self.conf)],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        self.cluster.start()
        until(lambda: self.unsent() == 0, "slurmdbd has the first events")

    def close(self) -> None:
        """End all of it."""
        self.cluster.close()
        if self.database is not None and self.database.poll() is None:
            self.database.kill()
            self.database.wait()

    def unsent(self) -> int:
        """Events that slurmdbd does not have yet."""
        return self.cluster.call(GetDiagnostics(), Diagnostics).unsent_events

    def ended(self) -> list[str]:
        """Daemons that run no more."""
        daemons = (self.cluster.controller, self.database, *self.cluster.daemons.values())
        return [str(daemon.args) for daemon in daemons if daemon is not None and daemon.poll() is not None]

    def complaints(self) -> list[str]:
        """Tracebacks in logs, each with the line before it; one of a kind."""
        found: dict[tuple[str, str], str] = {}
        for path in sorted(self.cluster.root.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()
            for number, line in enumerate(lines):
                if line.startswith("Traceback (most recent call last)"):
                    inside = list(takewhile(lambda one: one[:1] == " ", lines[number + 1 :]))
                    error = lines[number + 1 + len(inside) :][:1]
                    places = [one.strip() for one in inside if one.startswith("  File ")]
                    kind = (path.name, f"{[one.partition(':')[0] for one in error]} {places[-1:]}")
                    found.setdefault(kind, "\n".join([path.name, *lines[number - 1 : number], *inside, *error]))
        return list(found.values())

    def shown(self, *command: str) -> None:
        """A command that shows what there is must be able to."""
        program = f"from spritz.cli.{command[0]} import entry; entry()"
        done = subprocess.run(
            [sys.executable, "-c", program, *command[1:]],
            env={"PATH": os.environ["PATH"], "SLURM_CONF": str(self.cluster.conf), "SPRITZ_NO_SERVER": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, f"{command}: {done.stderr.decode(errors='replace')[-3000:]}"


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target()
    try:
        made.start()
        yield made
    finally:
        made.close()


def round_of(random: Random, requests: list[type[Struct]], work: Path, jobs: int) -> list[Message]:
    """Messages of one connection: almost half of them jobs, where these are taken. `jobs`: how many there may be."""
    wildness, density = random.choice((0.0, 0.01, 0.1)), random.choice((0.03, 0.2))
    odd = Odd(random, wildness=wildness, density=density, jobs=jobs)
    submissions = [kind for kind in requests if kind in (SubmitJob, SubmitHetJob)]
    messages: list[Message] = []
    for _ in range(ROUND_SIZE):
        kind = random.choice(submissions if submissions and random.random() < 0.4 else requests)
        if kind is SubmitHetJob:
            body: dict[str, object] = {
                "components": [a_job(odd, random, work) for _ in range(random.choice((1, 2, 3)))]
            }
        else:
            body = a_job(odd, random, work) if kind is SubmitJob else odd.body(kind)
        messages.append((kind.__name__, body))
    return messages


def a_job(odd: Odd, random: Random, work: Path) -> dict[str, object]:
    """A submission that would do but for some fields; it writes into `work` alone."""
    fields = [
        name for name in JobSpec.__struct_fields__ if name not in ("uid", "gid", "priority") or random.random() < 0.1
    ]
    chosen = random.sample(fields, random.choice((0, 1, 2, 3, 5)))
    places = {"work_dir": str(work), "stdin": "/dev/null", "stdout": "/dev/null", "stderr": "/dev/null"}
    spec = {"batch": True, "name": "job", "time_limit_minutes": 1, **odd.fields(JobSpec, chosen), **places}
    more = {"test_only": True} if random.random() < 0.02 else {}
    script = random.choice((b"#!/bin/sh\ntrue\n", b"#!/bin/sh\nsleep 5\n"))
    return {"spec": spec, "script": script, "environment": [b"PATH=/usr/bin:/bin"], **more}


def play(target: Target, rounds: list[tuple[str, list[Message]]]) -> None:
    """Send each round to its daemon. Prints what came of it."""
    answers: dict[str, Counter[str]] = {name: Counter() for name in target.addresses}
    for number, (name, messages) in enumerate(rounds):
        try:
            # slurmctld holds some answers back until something happens.
            address, wait = target.addresses[name], name == "slurmdbd"
            answers[name] += exchange(address, messages, patience=PATIENCE_SECONDS, all_of_them=wait)
        except OSError as error:
            kinds = Counter(kind for kind, _body in messages)
            print(f"FAILED: round {number} to {name}: {error!r}; it had {dict(kinds)}")
            break
    for name, counts in answers.items():
        print(f"{name}: {sum(counts.values())} answers, {counts['ok']} ok, {dict(counts.most_common(8))}")


def test_nothing_that_users_can_send_stops_the_daemons(target: Target) -> None:
    random = Random(SEED)
    mine = os.getuid() != 0
    takes = {"slurmctld": taken.of_controller(), "slurmdbd": taken.of_database()}
    requests = {
        name: sorted(
            (kind for kind in kinds if not mine or kind.__name__ not in UNWANTED), key=lambda one: one.__name__
        )
        for name, kinds in takes.items()
    }
    rounds = []
    for number in range(ROUNDS):
        name = "slurmdbd" if number % 4 == 3 else "slurmctld"
        rounds.append((name, round_of(random, requests[name], target.cluster.work, 1 + 8 * number)))
    if mine:
        play(target, rounds)
        said = ""
    else:
        said = as_user(NOBODY, lambda: play(target, rounds))
    print(f"SPRITZ_FUZZ_SEED={SEED} SPRITZ_FUZZ_ROUNDS={ROUNDS}\n{said}")
    complaints = target.complaints()
    assert not target.ended(), "\n\n".join(complaints)
    assert "FAILED" not in said, said
    assert "Error:" not in said, said
    assert not complaints, "\n\n".join(complaints)
    until(lambda: target.unsent() == 0, lambda: f"slurmdbd has all events; it lacks {target.unsent()}")
    for command in (("squeue", "-a"), ("scontrol", "show", "job"), ("scontrol", "show", "node"), ("sacct", "-a", "-l")):
        target.shown(*command)
    target.cluster.kill_controller()
    target.cluster.start_controller()
    target.shown("scontrol", "show", "job")
    complaints = target.complaints()
    assert not complaints, "\n\n".join(complaints)
