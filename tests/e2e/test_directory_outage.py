"""A directory of users that does not answer delays only requests that need it: `runtime.directory`, end to end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.client.errors import RemoteError
from spritz.model.commands.job import Done, JobSubmitted
from spritz.model.queries.daemons import Reconfigure
from spritz.model.queries.events import Counters, Statistics
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from spritz.model.queries.nodes import ListNodes, Nodes
from tests.e2e.controller_process import ControllerProcess, a_job, until
from tests.e2e.users import as_user

#: No passwd file has it.
STRANGER = 4_000_000
NOBODY = 65534

#: slurmctld in a system whose lookups hang while the file exists, and where every answer is old at once.
PROGRAM = """
import grp, os, pwd, time
from spritz.runtime import directory
directory.DEADLINE_SECONDS, directory.FRESH_SECONDS = 3.0, 0.0

def hanging(call):
    def look_up(key):
        while os.path.exists({gate!r}):
            time.sleep(0.01)
        return call(key)
    return look_up

for module, name in ((pwd, "getpwuid"), (pwd, "getpwnam"), (grp, "getgrgid"), (grp, "getgrnam")):
    setattr(module, name, hanging(getattr(module, name)))
from spritz.controller.main import entry
entry()
"""


class Outage:
    """A controller, and a directory of users that can be taken away from it."""

    def __init__(self, directory: Path) -> None:
        self._gate = directory / "gate"
        self.controller = ControllerProcess(directory)
        self.controller.command = [sys.executable, "-c", PROGRAM.format(gate=str(self._gate))]
        self.controller.start()

    def begin(self) -> None:
        self._gate.touch()

    def end(self) -> None:
        self._gate.unlink()

    def jobs(self) -> int:
        with self.controller.connect() as connection:
            return sum(len(piece.jobs) for piece in connection.stream(ListJobs(all=True), Jobs))

    def refusal(self, uid: int) -> RemoteError:
        with self.controller.connect() as connection, pytest.raises(RemoteError) as refused:
            connection.call(a_job("of another", uid=uid), JobSubmitted)
        return refused.value


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[Outage]:
    made = Outage(tmp_path)
    yield made
    made.controller.kill()


@pytest.mark.slow
def test_known_users_go_on_and_only_what_needs_an_answer_fails_after_the_deadline(outage: Outage) -> None:
    with outage.controller.connect() as connection:
        connection.call(a_job("before"), JobSubmitted)
        outage.begin()
        # The directory hangs with this one, and requests of others are answered meanwhile.
        connection.send(a_job("of another", uid=STRANGER))
        with outage.controller.connect() as other:
            for name in ("one", "two"):
                other.call(a_job(name), JobSubmitted)
            other.call(ListNodes(), Nodes)
        assert outage.jobs() == 3
    assert outage.refusal(STRANGER).message == f"the directory of users and groups did not answer for user {STRANGER}"
    outage.end()
    until(lambda: outage.refusal(STRANGER).code == "ESLURM_USER_ID_MISSING", "the directory's answer")
    assert outage.refusal(STRANGER).hint == f"the controller's machine has no user with uid {STRANGER}"


def test_reconfiguration_waits_for_the_directory_and_no_request_waits_for_it(outage: Outage) -> None:
    with outage.controller.connect() as connection:
        connection.call(a_job("before"), JobSubmitted)
        outage.begin()
        connection.send(Reconfigure())
        with outage.controller.connect() as other:
            other.call(a_job("meanwhile"), JobSubmitted)
        outage.end()
    with outage.controller.connect() as connection:
        connection.call(Reconfigure(), Done)
    assert outage.jobs() == 2


@pytest.mark.slow
def test_administrators_act_although_nothing_is_known_of_them(tmp_path: Path) -> None:
    outage = Outage(tmp_path)
    try:
        outage.begin()
        with outage.controller.connect() as connection:
            connection.call(Statistics(), Counters)
            assert outage.jobs() == 0
            assert outage.refusal(os.getuid()).code == "ESLURM_INTERNAL", "a job needs its user's groups"
        assert outage.controller.stop() == 0, "lookups that hang do not keep the daemon from ending"
    finally:
        outage.controller.kill()


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs to be another user")
def test_an_unknown_user_is_shown_the_queue_and_may_submit_when_the_directory_is_back(outage: Outage) -> None:
    def ask() -> None:
        with outage.controller.connect() as connection:
            print(sum(len(piece.jobs) for piece in connection.stream(ListJobs(all=True), Jobs)))
            connection.call(a_job("mine"), JobSubmitted)

    outage.begin()
    shown, refused = as_user(NOBODY, ask).splitlines()
    assert shown == "0"
    assert refused == f"RemoteError: the directory of users and groups did not answer for user {NOBODY}"
    outage.end()
    until(lambda: as_user(NOBODY, ask).splitlines() == ["0"], "the directory's answer")
    assert outage.jobs() == 1
