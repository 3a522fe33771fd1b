"""What may be asked of the controller, over the real socket: reads, rights, waiting, and callers who misbehave."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct, structs

from spritz.client.command.sync import Connection
from spritz.client.errors import RemoteError
from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.job import CancelJobs, CancelResult, Done, FinishAllocation, JobSubmitted, SubmitJob, WillRun
from spritz.model.commands.reservation import (
    CreateReservation,
    DeleteReservation,
    ReservationMade,
    ReservationRequest,
)
from spritz.model.commands.step import CreateStep, StepCreated
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import JobSpec
from spritz.model.job.step import StepSpec
from spritz.model.node_daemon.launch import LaunchBatch, TerminateJob
from spritz.model.node_daemon.reports import NodeSamples, RegisterNode
from spritz.model.queries.allocations import AllocationGranted, AwaitAllocation
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.queries.events import EventBatch, WatchEvents
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import AwaitEnd, GetScript, JobEndedReply, JobRows, ListJobs, Script
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.model.queries.steps import ListSteps, Steps
from spritz.model.resources import NodeCapacity
from spritz.wire.frames import frame
from tests.e2e.controller_process import ControllerProcess, a_job, until
from tests.e2e.fake_node import FakeNode
from tests.e2e.listing import jobs_by_name
from tests.e2e.users import NOBODY, as_user


@pytest.fixture(scope="module")
def controller() -> Iterator[ControllerProcess]:
    """One for all: these tests look, and leave what they made behind."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        # Longer than any test: what ends before that did not wait for it.
        process = ControllerProcess(Path(name), nodes=6, extra="InactiveLimit=1000")
        process.start()
        yield process
        process.kill()


def submit(controller: ControllerProcess, name: str, **fields: object) -> int:
    with controller.connect() as connection:
        return connection.call(a_job(name, **fields), JobSubmitted).job_id


def state_of(controller: ControllerProcess, job_id: int) -> str:
    with controller.connect() as connection:
        request = ListJobs(filter=JobFilter(targets=(JobTarget(job_id),)), fields=("state",))
        return str(next(iter(connection.stream(request, JobRows))).rows[0][0])


def send_kept(connection: Connection, request: Struct) -> None:
    """Send a request, and return once the controller has it and has not answered: a later one is answered first."""
    kept = connection.send(request)
    later = connection.send(ListNodes(names=("n1",)))
    first = connection.receive()
    assert first.id == later, f"request {kept} is answered: {first}"


async def eventually(condition: object, what: str, seconds: float = 100.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        await asyncio.sleep(0.005)


# -- reads


def test_rows_hold_the_fields_that_were_asked_for_in_their_order(controller: ControllerProcess) -> None:
    job_id = submit(controller, "rows", hold=True, comment="c")
    with controller.connect() as connection:
        request = ListJobs(
            filter=JobFilter(targets=(JobTarget(job_id),)),
            fields=("spec.name", "id", "state", "allocation.cpu_count", "spec.user"),
        )
        [piece] = connection.stream(request, JobRows)
        assert [tuple(row) for row in piece.rows] == [
            ("rows", job_id, "PENDING", None, pwd.getpwuid(os.getuid()).pw_name)
        ]
        [whole] = connection.stream(ListJobs(filter=request.filter), Jobs)
        assert whole.jobs[0].spec.comment == "c"
        assert whole.jobs[0].spec.script_key != ""


@pytest.mark.parametrize("field", ["spec.__class__", "nothing", "id.real", "spec", "spec.name.upper", ""])
def test_fields_lead_to_values_of_records_and_nowhere_else(controller: ControllerProcess, field: str) -> None:
    submit(controller, "fields", hold=True)
    with controller.connect() as connection:
        if field == "spec":
            assert list(connection.stream(ListJobs(fields=(field,)), JobRows))
        else:
            with pytest.raises(RemoteError, match="has no field"):
                list(connection.stream(ListJobs(fields=(field,)), JobRows))


def test_one_unknown_job_is_an_error_and_two_are_an_empty_list(controller: ControllerProcess) -> None:
    with controller.connect() as connection:
        one = ListJobs(filter=JobFilter(targets=(JobTarget(999_999),)), fields=("id",))
        with pytest.raises(RemoteError, match="Invalid job id specified") as error:
            list(connection.stream(one, JobRows))
        assert error.value.errno == 2017
        two = ListJobs(filter=JobFilter(targets=(JobTarget(999_999), JobTarget(999_998))), fields=("id",))
        assert [piece.rows for piece in connection.stream(two, JobRows)] == [[]]


def test_an_unchanged_list_comes_back_empty_under_the_same_version(controller: ControllerProcess) -> None:
    submit(controller, "version", hold=True)
    with controller.connect() as connection:
        [first] = connection.stream(ListJobs(fields=("id",)), JobRows)
        [second] = connection.stream(ListJobs(fields=("id",), unless_version=first.version), JobRows)
    assert first.rows
    assert (second.version, second.rows) == (first.version, [])


def test_nodes_show_what_holds_them(controller: ControllerProcess) -> None:
    async def main() -> None:
        async with FakeNode(controller.socket_name, ["n1"], hold=True) as node:
            await eventually(lambda: node.registrations, "the registration")
            job_id = submit(controller, "holder", tasks=3, tasks_given=True, node_list=("n1",))
            await eventually(lambda: node.running, "the launch")
            with controller.connect() as connection:
                view = connection.call(ListNodes(names=("n1",)), Nodes).nodes[0]
                assert (view.state_names, view.cpus_allocated, view.jobs) == (("MIXED",), 3, (job_id,))
                assert view.partitions == ("debug",)
                steps = connection.call(ListSteps(), Steps).steps
                assert [(step.step.job_id, step.job_name) for step in steps] == [(job_id, "holder")]
                connection.call(UpdateNode(names=("n1",), state="DRAIN", reason="test"), Done)
                view = connection.call(ListNodes(names=("n1",)), Nodes).nodes[0]
                assert view.state_names == ("MIXED", "DRAIN")
                connection.call(UpdateNode(names=("n1",), state="RESUME"), Done)
                with pytest.raises(RemoteError, match="Invalid node name"):
                    connection.call(ListNodes(names=("n1", "n99")), Nodes)
            node.finish(job_id)
            await eventually(lambda: state_of(controller, job_id) == "COMPLETED", "the end")
            with controller.connect() as connection:
                assert connection.call(ListNodes(names=("n1",)), Nodes).nodes[0].state_names == ("IDLE",)
        with controller.connect() as connection:
            until(
                lambda: "NOT_RESPONDING" in connection.call(ListNodes(names=("n1",)), Nodes).nodes[0].state_names,
                "the node's star",
            )

    asyncio.run(main())


def test_test_only_tells_when_and_where_and_queues_nothing(controller: ControllerProcess) -> None:
    async def main() -> None:
        async with FakeNode(controller.socket_name, ["n2"], hold=True) as node:
            await eventually(lambda: node.registrations, "the registration")
            before = set(jobs_by_name(controller))
            begins = float(int(time.time()) + 3600)
            spec = JobSpec(name="asked", batch=True, tasks=2, tasks_given=True, node_list=("n2",), time_limit_minutes=5)
            question = SubmitJob(spec=spec, script=b"#!/bin/sh\n", test_only=True)
            with controller.connect() as connection:
                asked_at = time.time()
                now = connection.call(question, WillRun)
                assert (now.nodes, now.cpus, now.partition) == ("n2", 2, "debug")
                assert int(asked_at) <= now.start_at <= time.time() + 1, "at once"
                job_id = submit(controller, "blocker", tasks=4, tasks_given=True, node_list=("n2",))
                await eventually(lambda: node.running, "the launch")
                later = connection.call(question, WillRun)
                assert asked_at + 600 <= later.start_at < begins, "after the blocker's ten minutes"
                user = pwd.getpwuid(os.getuid()).pw_name
                soon = ReservationRequest(
                    name="soon", start_at=begins, duration_seconds=3600.0, nodes=("n2",), users=(user,)
                )
                connection.call(CreateReservation(request=soon), ReservationMade)
                inside = structs.replace(question, spec=structs.replace(spec, reservation="soon"))
                at_last = connection.call(inside, WillRun)
                assert (at_last.start_at, at_last.nodes) == (begins, "n2"), "when its reservation begins"
                connection.call(DeleteReservation(name="soon"), Done)
            assert set(jobs_by_name(controller)) - before == {"blocker"}
            node.finish(job_id)
            await eventually(lambda: state_of(controller, job_id) == "COMPLETED", "the end")

    asyncio.run(main())


def test_watched_events_are_numbered_without_gaps_from_disk_to_live(controller: ControllerProcess) -> None:
    submit(controller, "watched-1", hold=True)
    numbers: list[int] = []
    names: list[object] = []
    with controller.connect() as watcher:
        stream = watcher.stream(WatchEvents(since=0), EventBatch, timeout=100)
        for batch in stream:
            numbers += [event[0] for event in batch.events]
            names += [event[3]["job"]["spec"].get("name") for event in batch.events if event[2] == "JobQueued"]  # type: ignore[index]
            if names[-1:] == ["watched-2"]:
                break
            if names[-1:] == ["watched-1"]:
                submit(controller, "watched-2", hold=True)
    assert numbers == list(range(1, len(numbers) + 1))


# -- rights


def test_an_unknown_request_is_refused_and_the_connection_goes_on(controller: ControllerProcess) -> None:
    class MakeCoffee(Struct):
        cups: int = 1

    with controller.connect() as connection:
        with pytest.raises(RemoteError, match="MakeCoffee"):
            connection.call(MakeCoffee(), Done)
        connection.call(Ping(), Pong)


def test_over_tcp_the_kernel_vouches_for_callers_on_this_machine(controller: ControllerProcess) -> None:
    with controller.connect(tcp=True) as connection:
        job_id = connection.call(a_job("by tcp", hold=True), JobSubmitted).job_id
        [whole] = connection.stream(ListJobs(filter=JobFilter(targets=(JobTarget(job_id),))), Jobs)
    assert whole.jobs[0].spec.uid == os.getuid()


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_users_own_their_own_jobs_only(controller: ControllerProcess) -> None:
    roots = submit(controller, "roots", hold=True)

    def user() -> None:
        with controller.connect() as connection:
            own = connection.call(a_job("own", uid=NOBODY, user="root", hold=True), JobSubmitted).job_id
            print("own", own)
            [whole] = connection.stream(ListJobs(filter=JobFilter(targets=(JobTarget(own),))), Jobs)
            print("owner", whole.jobs[0].spec.uid, whole.jobs[0].spec.user)
            print("script", connection.call(GetScript(job_id=own), Script).script)
            for request, reply in (
                (GetScript(job_id=roots), Script),
                (a_job("as root", uid=0), JobSubmitted),
                (UpdateNode(names=("n1",), state="DRAIN", reason="no"), Done),
                (NodeSamples(samples=()), Done),
                (
                    RegisterNode(
                        name="n1", capacity=NodeCapacity(), booted_at=0, daemon_started_at=0, version="25.05.0"
                    ),
                    Done,
                ),
                (AwaitAllocation(job_id=roots), AllocationGranted),
            ):
                try:
                    connection.call(request, reply)
                    print("allowed", type(request).__name__)
                except RemoteError as error:
                    print("refused", type(request).__name__, error.code)
            cancelled = connection.call(CancelJobs(filter=JobFilter(targets=(JobTarget(roots),))), CancelResult)
            print("cancel", [outcome.code for outcome in cancelled.outcomes])

    lines = as_user(NOBODY, user).splitlines()
    assert lines[1] == f"owner {NOBODY} nobody"
    assert lines[2] == r"script b'#!/bin/sh\ntrue\n'"
    assert lines[3:] == [
        "refused GetScript ESLURM_USER_ID_MISSING",
        "refused SubmitJob ESLURM_USER_ID_MISSING",
        "refused UpdateNode ESLURM_USER_ID_MISSING",
        "refused NodeSamples ESLURM_ACCESS_DENIED",
        "refused RegisterNode ESLURM_ACCESS_DENIED",
        "refused AwaitAllocation ESLURM_ACCESS_DENIED",
        "cancel ['ESLURM_ACCESS_DENIED']",
    ]
    assert state_of(controller, roots) == "PENDING"


# -- waiting


def an_allocation(name: str, **fields: object) -> SubmitJob:
    return SubmitJob(spec=JobSpec(name=name, interactive=True, time_limit_minutes=5, **fields))  # type: ignore[arg-type]


def test_await_allocation_answers_when_the_job_runs_and_await_end_when_it_is_over(
    controller: ControllerProcess,
) -> None:
    async def main() -> None:
        with controller.connect() as waiter, controller.connect() as other, controller.connect() as end:
            job_id = waiter.call(an_allocation("salloc", node_list=("n3",)), JobSubmitted).job_id
            send_kept(waiter, AwaitAllocation(job_id=job_id))
            send_kept(end, AwaitEnd(job_id=job_id))
            async with FakeNode(controller.socket_name, ["n3"]):
                granted = await asyncio.to_thread(waiter.receive, timeout=100)
                assert granted.error is None
                again = other.call(AwaitAllocation(job_id=job_id), AllocationGranted)
                assert (again.job.state.value, again.node_addresses) == ("RUNNING", ("n3",))
                assert end.is_quiet(), "the job has not ended"
                other.call(FinishAllocation(job_id=job_id), Done)
                answer = await asyncio.to_thread(end.receive, timeout=100)
                assert answer.error is None
                assert other.call(AwaitEnd(job_id=job_id), JobEndedReply).state == "COMPLETED"

    asyncio.run(main())


def test_await_allocation_gives_up_after_its_timeout_with_a_pending_job(controller: ControllerProcess) -> None:
    with controller.connect() as connection:
        job_id = connection.call(a_job("never", hold=True), JobSubmitted).job_id
        answer = connection.call(AwaitAllocation(job_id=job_id, timeout_seconds=0.1), AllocationGranted)
    assert answer.job.state.value == "PENDING"


def test_an_interactive_job_that_waits_is_cancelled_when_its_client_dies(controller: ControllerProcess) -> None:
    with controller.connect() as connection:
        job_id = connection.call(an_allocation("gone", hold=True), JobSubmitted).job_id
        send_kept(connection, AwaitAllocation(job_id=job_id))
    until(lambda: state_of(controller, job_id) == "CANCELLED", "the cancellation")


def test_a_batch_job_survives_the_command_that_waited_for_it(controller: ControllerProcess) -> None:
    with controller.connect() as connection:
        job_id = connection.call(a_job("stays", hold=True), JobSubmitted).job_id
        send_kept(connection, AwaitAllocation(job_id=job_id))
    with controller.connect() as connection:
        connection.call(Ping(), Pong)
    assert state_of(controller, job_id) == "PENDING"


def test_a_step_waits_for_the_resources_that_others_hold_and_is_created_when_they_end(
    controller: ControllerProcess,
) -> None:
    async def main() -> None:
        async with FakeNode(controller.socket_name, ["n5"]) as node:
            with controller.connect() as connection, controller.connect() as patient:
                job_id = connection.call(
                    an_allocation("steps", node_list=("n5",), tasks=4, tasks_given=True), JobSubmitted
                ).job_id
                await asyncio.to_thread(connection.call, AwaitAllocation(job_id=job_id), AllocationGranted)
                whole = StepSpec(name="whole", tasks=4, argv=("true",))
                first = connection.call(CreateStep(job_id=job_id, spec=whole), StepCreated).step
                with pytest.raises(RemoteError) as busy:
                    connection.call(CreateStep(job_id=job_id, spec=whole), StepCreated)
                assert busy.value.code == "ESLURM_NODES_BUSY"
                send_kept(patient, CreateStep(job_id=job_id, spec=whole, wait=True))
                await eventually(lambda: node.steps, "the launch of the first step")
                with pytest.raises(RemoteError) as behind:  # also a step that would fit: others wait before it
                    connection.call(CreateStep(job_id=job_id, spec=StepSpec(argv=("true",), overlap=True)), StepCreated)
                assert behind.value.code == "ESLURM_NODES_BUSY"
                node.finish_step(job_id, first.step_id)
                answer = await asyncio.to_thread(patient.receive, timeout=100)
                assert answer.error is None
                await eventually(lambda: (job_id, first.step_id + 1) in node.steps, "the launch of the second step")
                send_kept(patient, CreateStep(job_id=job_id, spec=whole, wait=True))
                connection.call(FinishAllocation(job_id=job_id), Done)
                refused = await asyncio.to_thread(patient.receive, timeout=100)
                assert refused.error is not None, "the job ended under the waiting step"

    asyncio.run(main())


def test_a_granted_interactive_job_outlives_its_connection_but_not_its_client(controller: ControllerProcess) -> None:
    async def main() -> None:
        async with FakeNode(controller.socket_name, ["n6"]) as node:
            await eventually(lambda: node.registrations, "the registration")
            connection = controller.connect()
            alive = connection.call(an_allocation("alive", node_list=("n6",)), JobSubmitted).job_id
            await asyncio.to_thread(connection.call, AwaitAllocation(job_id=alive), AllocationGranted)
            connection.close()

            def die() -> None:
                with controller.connect() as other:
                    job_id = other.call(an_allocation("dead", node_list=("n6",)), JobSubmitted).job_id
                    other.call(AwaitAllocation(job_id=job_id), AllocationGranted)

            def look_and_die() -> None:
                with controller.connect() as other:
                    other.call(AwaitAllocation(job_id=alive), AllocationGranted)

            await asyncio.to_thread(as_user, os.getuid(), look_and_die)
            await asyncio.to_thread(as_user, os.getuid(), die)
            dead = jobs_by_name(controller)["dead"][0]
            # Before InactiveLimit: its process has ended, so the command cannot reconnect.
            await eventually(lambda: state_of(controller, dead) == "CANCELLED", "the revocation")
            assert state_of(controller, alive) == "RUNNING", "its process lives: it has only closed the connection"
            with controller.connect() as other:
                other.call(FinishAllocation(job_id=alive), Done)

    asyncio.run(main())


# -- nodes


def test_a_node_that_was_away_gets_what_it_missed_and_the_later_registration_counts(
    controller: ControllerProcess,
) -> None:
    async def main() -> None:
        async with FakeNode(controller.socket_name, ["n4"], hold=True) as first:
            await eventually(lambda: first.registrations, "the registration")
            async with FakeNode(controller.socket_name, ["n4"], hold=True) as second:
                await eventually(lambda: second.registrations, "the second registration")
                job_id = submit(controller, "later", node_list=("n4",))
                await eventually(lambda: second.running, "the launch on the later connection")
                assert not first.running
        # The node is away: the cancellation has to wait for it.
        with controller.connect() as connection:
            connection.call(CancelJobs(filter=JobFilter(targets=(JobTarget(job_id),))), CancelResult)
        async with FakeNode(controller.socket_name, ["n4"], hold=True) as third:
            await eventually(
                lambda: [message for message in third.received if isinstance(message, TerminateJob)], "TerminateJob"
            )
            assert not [message for message in third.received if isinstance(message, LaunchBatch)]
            await eventually(lambda: state_of(controller, job_id) == "CANCELLED", "the end")

    asyncio.run(main())


# -- callers who misbehave


def raw(controller: ControllerProcess) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(100)
    connection.connect(controller.socket_name)
    return connection


@pytest.mark.parametrize(
    "junk",
    [b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 64, b"\0\0\0\0", frame(b"\x93\x01\x02\x03"), os.urandom(3000)],
    ids=["http", "ones", "empty frame", "odd envelope", "noise"],
)
def test_garbage_ends_only_its_own_connection(controller: ControllerProcess, junk: bytes) -> None:
    with controller.connect() as other:
        with raw(controller) as connection:
            connection.sendall(junk)
            try:
                while connection.recv(65536):
                    pass
            except ConnectionResetError:
                pass
        other.call(Ping(), Pong)


def test_half_a_frame_and_silence_delay_no_other_client(controller: ControllerProcess) -> None:
    with raw(controller) as connection:
        connection.sendall(struct.pack(">I", 1000) + b"half")
        with controller.connect() as other:
            assert other.call(a_job("meanwhile", hold=True), JobSubmitted).job_id


def test_a_huge_script_is_refused_with_slurms_reason(controller: ControllerProcess) -> None:
    with controller.connect(timeout=100) as connection:
        command = SubmitJob(spec=JobSpec(name="huge", batch=True), script=b"#!/bin/sh\n" + b"#" * (60 << 20))
        with pytest.raises(RemoteError, match="Pathname of a file, directory or other parameter too long"):
            connection.call(command, JobSubmitted)
        connection.call(Ping(), Pong)
    assert "huge" not in jobs_by_name(controller)


def test_a_request_beyond_every_limit_is_refused_before_it_is_read(controller: ControllerProcess) -> None:
    with controller.connect() as connection:
        connection.call(Ping(), Pong)
    with raw(controller) as connection:
        connection.sendall(struct.pack(">I", 2**31))
        try:
            assert connection.recv(65536) == b""
        except ConnectionResetError:
            pass
    with controller.connect() as other:
        other.call(Ping(), Pong)
