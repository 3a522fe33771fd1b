"""Runs between users: what one shares, the members of a group can show, compare and repeat, and others cannot.

Real users, processes, modes, git and job scripts; Slurm's commands are scripts that run a job at its submission.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance import databases
from tests.e2e.people import Person, interpreter, made_people

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("useradd") is None, reason="makes users: needs root and useradd"
)

_SLURM = {
    "sbatch": """\
export SLURM_JOB_ID=$$ SLURM_NNODES=1 SLURM_JOB_NODELIST=n1 SLURM_NTASKS=1
for script; do :; done
bash "$script" > /dev/null 2>&1
echo $$
""",
    "srun": """\
for word; do case $word in --output=*) log=${word#*=};; -*) ;; *) break;; esac; shift; done
SLURM_PROCID=0 "$@" >> "${log//%t/0}" 2>&1
""",
    "squeue": "",
    "sacct": "",
    "scontrol": "exit 1\n",
}


@dataclass
class Desk:
    """A user with a project, and the command `spritz`."""

    person: Person
    command: list[str]
    environment: dict[str, str]

    @property
    def home(self) -> Path:
        return self.person.home / ".local/share/spritz"

    def __call__(self, *words: str, status: int = 0, **variables: str) -> str:
        """What `spritz WORDS` printed, errors last. Fails unless it ended with `status`."""
        words = (*self.command, "-c", "from spritz.cli.spritz import entry; entry()", *words)
        done = self.person.run(
            "/bin/sh", "-c", 'cd ~/project && exec "$@"', "sh", *words, env=self.environment | variables
        )
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def can_read(self, root: Path) -> set[str]:
        """Files below the directory that the user can read, as root knows their names."""
        paths = [str(path) for path in root.rglob("*") if path.is_file()]
        program = "import os, sys; print(*(path for path in sys.argv[1:] if os.access(path, os.R_OK)), sep='\\n')"
        done = self.person.run(*self.command, "-c", program, *paths, env=self.environment)
        return {os.path.relpath(path, root) for path in done.stdout.split()}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """SPRITZ_RUN_STORE; "" for an index of each user."""
    if request.param == "sqlite":
        yield ""
        return
    if os.environ.get("SPRITZ_TEST_DATABASES") != "all":
        pytest.skip("servers are started by `make databases`")
    with databases.server("postgresql") as server:
        url = server.url().replace("postgresql+psycopg:", "postgresql:")
        Path(url.partition("host=")[2]).chmod(0o711)
        yield url


@pytest.fixture(scope="module")
def desks(address: str) -> Iterator[dict[str, Desk]]:
    """alice and bob, who share a group, and carol. bob's home can be passed; he has the runs train-1 and train-2."""
    with made_people("alice", "bob", "carol") as people:
        programs = people["alice"].home.parent / "bin"
        programs.mkdir()
        for name, text in _SLURM.items():
            (programs / name).write_text(f"#!/bin/bash\n{text}")
            (programs / name).chmod(0o755)
        command, environment = interpreter(people["alice"])
        environment |= {"PATH": f"{programs}:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        # Without samples nothing of a job is left when it has ended.
        environment |= {
            "SPRITZ_NO_SERVER": "1",
            "SPRITZ_SAMPLE_SECONDS": "0",
            **({"SPRITZ_RUN_STORE": address} if address else {}),
        }
        made = {name: Desk(person, command, environment) for name, person in people.items()}
        for desk in made.values():
            person = desk.person
            script = "git init -q project && cd project && echo \"print('version 1')\" > train.py && git add -A"
            commit = "git -c user.name=me -c user.email=me@here commit -q -m one"
            assert person.run("/bin/sh", "-c", f"{script} && {commit}").returncode == 0
        made["bob"].person.home.chmod(0o711)
        made["bob"]("run", "-d", "--", "python3", "train.py", "--lr", "1")
        yield made


@pytest.fixture(scope="module")
def shared(desks: dict[str, Desk]) -> str:
    """bob's run train-1, as others name it; he has shared it with the group that alice is in too."""
    bob = desks["bob"]
    both = next(group for group in bob.person.groups if group != bob.person.gid)
    refusal = desks["alice"]("show", f"{bob.person.name}/train-1", status=1)
    assert f"{bob.person.name}'s runs are not readable for you ({bob.home}" in refusal
    assert "spritz share" in refusal
    bob("run", "-d", "--", "sh", "-c", "echo secret $MY_TOKEN", MY_TOKEN="geheimnis-123")
    bob("share", "train-1", "--group", str(both))
    return f"{bob.person.name}/train-1"


def test_a_shared_run_is_shown_listed_compared_and_completed(desks: dict[str, Desk], shared: str) -> None:
    alice, bob = desks["alice"], desks["bob"].person.name
    assert "Command    python3 train.py --lr 1\n" in alice("show", shared)
    assert alice("logs", shared) == "version 1\n"
    assert shared in alice("runs", "--user", bob)
    assert shared in alice("runs", "--user", "all")
    assert shared in alice("completion", "words", "diff").split()
    assert "The code is the same." in alice("diff", shared, shared)


def test_a_shared_run_is_repeated_and_survives_its_removal(desks: dict[str, Desk], shared: str) -> None:
    alice, bob = desks["alice"], desks["bob"]
    bob("run", "-d", "--name", "gone", "--", "python3", "train.py")
    both = next(group for group in bob.person.groups if group != bob.person.gid)
    bob("share", "gone-1", "--group", str(both))
    (alice.person.home / "project" / "train.py").write_text("print('hers')\n")
    (bob.person.home / "project").chmod(0o700)
    printed = alice("rerun", "-d", f"{bob.person.name}/gone-1")
    assert "project is not readable for you" in printed
    name = printed.split()[0]
    bob("remove", "gone-1", "--yes")
    assert alice("logs", name) == "version 1\n"
    assert json.loads(alice("show", name, "--json"))["run"]["parent"] == f"{bob.person.name}/gone-1"
    assert alice("logs", alice("rerun", "-d", name).split()[0]) == "version 1\n"


def test_nothing_else_can_be_read(desks: dict[str, Desk], shared: str) -> None:
    """Neither the other run, nor the script with its variables, nor what is made later, nor anything by others."""
    alice, bob, carol = desks["alice"], desks["bob"], desks["carol"]
    bob("run", "-d", "--name", "later", "--", "python3", "train.py")
    made = 'mkdir -m 755 "$0" && echo x > "$0/token"'
    assert bob.person.run("/bin/sh", "-c", made, str(bob.home / "made-since")).returncode == 0
    bob("runs")
    readable = alice.can_read(bob.home)
    assert {path.split("/")[1] for path in readable if path != "shared-runs"} == {"train-1"}
    assert "runs/train-1/run.json" in readable
    assert "runs/train-1/job.sh" not in readable
    assert carol.can_read(bob.home) <= {"shared-runs"}
    assert "not readable for you" in carol("show", shared, status=1)
    assert "not readable for you" in alice("show", f"{bob.person.name}/sh-1", status=1)


def test_a_log_with_secrets_is_shared_when_they_are_masked(desks: dict[str, Desk], shared: str) -> None:
    alice, bob = desks["alice"], desks["bob"]
    (events,), log = (bob.home / "runs/sh-1").glob("events.*.jsonl"), bob.home / "runs/sh-1/log/0-0.log"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(line for line in lines if '"ended"' not in line))
    assert "its log stays closed" in bob("share", "sh-1", "--everyone")
    assert str(log.relative_to(bob.home)) not in alice.can_read(bob.home)
    assert "not shared yet" in alice("logs", f"{bob.person.name}/sh-1", status=1)
    assert "Command    sh -c" in alice("show", "--usage", f"{bob.person.name}/sh-1") + alice(
        "show", f"{bob.person.name}/sh-1"
    )
    events.write_text("".join(lines))
    bob("share", "sh-1", "--everyone")
    assert alice("logs", f"{bob.person.name}/sh-1").startswith("secret ***")
    bob("share", "sh-1", "--stop")
    assert "not readable for you" in alice("logs", f"{bob.person.name}/sh-1", status=1)


@pytest.mark.parametrize("words", [("cancel",), ("remove",), ("edit", "--tag", "x")])
def test_what_changes_a_run_of_another_is_refused(desks: dict[str, Desk], shared: str, words: tuple[str, ...]) -> None:
    assert f"only {desks['bob'].person.name} can do that" in desks["alice"](words[0], shared, *words[1:], status=1)


def test_another_of_the_same_name_cannot_pretend_to_be_the_owner(desks: dict[str, Desk], shared: str) -> None:
    """At the place where the owner's home might be lies a directory of a third user."""
    alice, carol = desks["alice"], desks["carol"]
    place = alice.person.home.parent / carol.person.name / ".local/share"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    subprocess.run(["cp", "-a", desks["bob"].home, place / "spritz"], check=True)
    carol.person.home.chmod(0o711)
    assert "not readable for you" in alice("show", f"{carol.person.name}/train-1", status=1)
