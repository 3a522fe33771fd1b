"""Other programs are told of jobs that have ended. Source: what 22.05's jobcomp/script gave its program."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec.structs import replace

from spritz.controller.jobcomp.ended import EndedJob
from spritz.controller.jobcomp.listener import Listener
from spritz.controller.jobcomp.script import variables
from spritz.controller.jobcomp.spool import Full, Spool
from spritz.controller.jobcomp.web import Poster, Server, document, encode, start_document
from spritz.model.commands.job import RequeueJob
from spritz.model.errors import SpritzError
from spritz.model.events.job import JobEnded
from spritz.model.ids import INFINITE
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import Dependency, Job, JobSpec
from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobState
from spritz_testing.builders import World, capacity
from tests.unit.controller.heard import Heard

if TYPE_CHECKING:
    from spritz.controller.context import Context
    from spritz.core.machine import Outcome

SUBMITTED = 1_795_316_950.0
ALLOCATION = Allocation(partition="debug", nodes=(NodeAllocation(node="n1", cpus="1", memory_mib=1000),))


def an_end(**spec: Any) -> EndedJob:
    given: dict[str, Any] = {
        "name": "na me",
        "user": "root",
        "uid": 0,
        "group": "root",
        "gid": 0,
        "account": "phys",
        "qos": "normal",
        "work_dir": "/tmp",
        "batch": True,
        "time_limit_minutes": 5,
        "stdin": "/dev/null",
        "stdout": "/tmp/o.%j",
        "stderr": "/tmp/e.%j",
    }
    job = Job(
        id=10,
        spec=JobSpec(**(given | spec)),
        partition="debug",
        submitted_at=SUBMITTED,
        eligible_at=SUBMITTED,
    )
    event = JobEnded(at=SUBMITTED + 64, job_id=10, state=JobState.FAILED, exit_status=3 << 8)
    return EndedJob(job, event, SUBMITTED + 4, ALLOCATION)


def test_a_program_is_told_what_slurm_tells_it() -> None:
    assert variables(an_end(), "real") == {
        "ACCOUNT": "phys",
        "ARRAYJOBID": "0",
        "ARRAYTASKID": "4294967294",
        "BATCH": "yes",
        "CLUSTER": "real",
        "CONSTRAINTS": "",
        "DB_FLAGS": "None",
        "DEPENDENCY": "",
        "DERIVED_EC": "0:0",
        "END": "1795317014",
        "EXITCODE": "3:0",
        "GID": "0",
        "GROUPNAME": "root",
        "JOBID": "10",
        "JOBNAME": "na me",
        "JOBSTATE": "FAILED",
        "LIMIT": "00:05:00",
        "NODECNT": "1",
        "NODES": "n1",
        "PARTITION": "debug",
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "PROCS": "1",
        "QOS": "normal",
        "RESERVATION": "",
        "START": "1795316954",
        "STATEREASONPREV": "None",
        "STDERR": "/tmp/e.%j",
        "STDIN": "/dev/null",
        "STDOUT": "/tmp/o.%j",
        "SUBMIT": "1795316950",
        "UID": "0",
        "USERNAME": "root",
        "WORK_DIR": "/tmp",
    }


def test_an_array_task_that_waited_and_a_job_that_never_ran() -> None:
    one = an_end(dependencies=(Dependency(kind="afterany", job_id=9),), time_limit_minutes=INFINITE)
    task = EndedJob(replace(one.job, array_job_id=11, array_task_id=2), one.event, one.started, None)
    found = variables(task, "real")
    assert (found["ARRAYJOBID"], found["ARRAYTASKID"], found["DEPENDENCY"]) == ("11", "2", "afterany:9(unfulfilled)")
    assert (found["LIMIT"], found["NODES"], found["NODECNT"], found["PROCS"]) == ("UNLIMITED", "", "0", "0")


def test_a_component_goes_by_both_names_that_slurm_has_for_it() -> None:
    one = an_end()
    component = EndedJob(replace(one.job, het_job_id=10, het_offset=1), one.event, one.started, one.allocation)
    found = variables(component, "real")
    assert [found[f"{name}JOB{what}"] for name in ("HET", "PACK") for what in ("ID", "OFFSET")] == ["10", "1"] * 2


def test_a_document_has_slurms_names_and_nothing_that_is_not_known() -> None:
    found = document(an_end(), "real", "#!/bin/sh\n")
    assert {name: found[name] for name in ("jobid", "@submit", "@start", "@end", "elapsed", "@queue_wait")} == {
        "jobid": 10,
        "@submit": "2026-11-22T03:09:10",
        "@start": "2026-11-22T03:09:14",
        "@end": "2026-11-22T03:10:14",
        "elapsed": 60,
        "@queue_wait": 4,
    }
    assert (found["state"], found["exit_code"], found["time_limit"], found["total_cpus"]) == ("FAILED", "3:0", 300, 1)
    assert found["script"] == "#!/bin/sh\n"
    assert "array_job_id" not in found
    assert b"\n" not in encode(document(an_end(name="a\nb\udcff"), "real"))


# -- the spool


def test_what_is_not_delivered_is_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "spool")
    spool = Spool(path, 1000)
    spool.add([b"one", b"two", b"three"])
    spool.delivered(b"one")
    again = Spool(path, 1000)
    assert again.first() == b"two"
    again.delivered(b"two")
    assert again.first() == b"three"
    again.delivered(b"three")
    assert again.first() is None
    assert (tmp_path / "spool").read_bytes() == b""
    again.add([b"four"])
    assert Spool(path, 1000).first() == b"four"


def test_half_a_line_of_a_daemon_that_was_killed_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_bytes(b"one\ntw")
    spool = Spool(str(path), 1000)
    spool.add([b"two"])
    assert spool.first() == b"one"
    spool.delivered(b"one")
    assert spool.first() == b"two"


def test_more_than_it_may_hold_is_refused_and_what_is_there_stays(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), 10)
    spool.add([b"12345"])
    with pytest.raises(Full):
        spool.add([b"12345"])
    spool.delivered(b"12345")
    spool.add([b"67890"])
    assert spool.first() == b"67890"


def test_records_longer_than_a_piece_of_reading(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "spool"), 1 << 20)
    long = b"x" * 200_000
    spool.add([long, b"next"])
    assert spool.first() == long
    spool.delivered(long)
    assert spool.first() == b"next"


# -- the server


class Receiver:
    """An HTTP server that answers as it is told to and keeps what it took."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.refused = 0
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.answers.pop(0) if receiver.answers else 201
                if status < 300:
                    assert self.headers["Content-Type"] == "application/json"
                    receiver.taken.append((self.path, json.loads(body)))
                else:
                    receiver.refused += 1
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                return None

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


class _Around:
    """What a Poster needs of the controller. Its clock goes on at once; `pauses` are those that were asked for."""

    def __init__(self, directory: Path) -> None:
        self.configuration = SimpleNamespace(
            state_directory=directory, settings=SimpleNamespace(cluster_name="real"), loaded=None
        )
        self.blobs = SimpleNamespace(get=self._blob)
        self.at_end: list[Callable[[], Awaitable[None]]] = []
        self.counters: list[Callable[[], dict[str, float]]] = []
        self.pauses: list[float] = []
        self.log = SimpleNamespace(error=lambda *_, **__: None, info=lambda *_, **__: None)
        self.clock = SimpleNamespace(sleep=self._sleep)
        self.tasks = SimpleNamespace(keep_contained=lambda begin, *, name, clock: self._spawn(begin(), name=name))
        self.running: list[asyncio.Task[None]] = []

    async def _blob(self, key: str) -> bytes:
        return b"#!/bin/sh\n"

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def _spawn(self, work: Any, *, name: str) -> None:
        self.running.append(asyncio.get_running_loop().create_task(work))

    def counts(self) -> dict[str, float]:
        return {name: value for counter in self.counters for name, value in counter().items()}


def posted(directory: Path, address: str, ends: list[EndedJob], until: Callable[[_Around], bool]) -> _Around:
    """A Poster's life, until that holds."""

    async def live() -> _Around:
        around = _Around(directory)
        poster = Poster(around, Server(f"{address}/slurm/_doc", ()))  # type: ignore[arg-type]  # what it needs of one
        if ends:
            poster.take(ends)
        async with asyncio.timeout(100):
            while not until(around):  # noqa: ASYNC110 - what threads have done
                await asyncio.sleep(0.005)
        for task in around.running:
            task.cancel()
        await asyncio.gather(*around.running, return_exceptions=True)
        return around

    return asyncio.run(live())


def test_each_end_is_posted_and_a_server_that_is_away_is_tried_again(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [503, 429, 500]
    around = posted(tmp_path, receiver.address, [an_end(), an_end(name="b")], lambda _: len(receiver.taken) == 2)
    assert [(path, body["job_name"]) for path, body in receiver.taken] == [
        ("/slurm/_doc", "na me"),
        ("/slurm/_doc", "b"),
    ]
    assert around.pauses == [1.0, 2.0, 4.0]


def test_what_a_server_refuses_for_good_does_not_hold_up_the_next(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [400]
    around = posted(tmp_path, receiver.address, [an_end(), an_end(name="b")], lambda _: bool(receiver.taken))
    assert [body["job_name"] for _, body in receiver.taken] == ["b"]
    assert around.counts()["completion.dropped_count"] == 1
    assert around.pauses == []


def test_what_was_not_posted_is_posted_by_the_next_daemon(tmp_path: Path, receiver: Receiver) -> None:
    nobody = Receiver()
    nobody.close()
    around = posted(tmp_path, nobody.address, [an_end(), an_end(name="b")], lambda around: len(around.pauses) > 1)
    assert around.counts()["completion.waiting_bytes"] > 0
    posted(tmp_path, receiver.address, [], lambda around: around.counts()["completion.waiting_bytes"] == 0)
    assert [body["job_name"] for _, body in receiver.taken] == ["na me", "b"]


def test_a_location_that_is_no_url_is_refused() -> None:
    for location in ("", "ftp://host/x", "http://", "http://host:port/x"):
        with pytest.raises(SpritzError, match="expected the URL of a server"):
            Server(location, ())


def test_the_first_life_of_a_requeued_job_keeps_its_own_times() -> None:
    """Recorded of 22.05: `scontrol requeue` ends a life as PENDING."""
    world, found, begun = World(hardware=capacity(cpus=4, memory_mib=5000)), list[EndedJob](), list[EndedJob]()
    writer = SimpleNamespace(listeners=Heard(), when_durable=lambda then: then())
    Listener(cast("Context", SimpleNamespace(machine=world.machine, writer=writer)), found.extend, begun.extend)

    def tell(outcome: Outcome) -> None:
        writer.listeners.inform(outcome.events)

    job_id = world.submit(time_limit_minutes=7)
    submitted, world.now = world.now, world.now + 5
    world.start(job_id)
    writer.listeners.inform(world.events)
    told = start_document(begun[0], "real")
    assert (told["jobid"], told["nodes"], told["total_cpus"], told["time_limit"]) == (job_id, "n1", 1, 420)
    assert not {"@end", "state", "exit_code"} & told.keys()
    world.now += 60
    tell(world.ok(RequeueJob(target=JobTarget(job_id))))
    (one,) = found
    assert (one.event.state, one.job.submitted_at, one.job.eligible_at) == (JobState.PENDING, submitted, submitted)
    assert (one.job.time_limit_minutes, one.started) == (7, submitted + 5)
    world.now += 5
    tell(world.cancel(job_id))
    assert (found[1].event.state, found[1].allocation) == (JobState.CANCELLED, None)
    assert found[1].job.submitted_at == submitted + 65
