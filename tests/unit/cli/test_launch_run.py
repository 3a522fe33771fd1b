"""The loop around a step, against supervisors played by the test over real sockets."""

from __future__ import annotations

import io
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from spritz.cli.call.context import Context
from spritz.cli.jobs.launch.interrupts import StepSignals
from spritz.cli.jobs.launch.listener import Listener
from spritz.cli.jobs.launch.run import StepRun
from spritz.cli.jobs.launch.settings import Settings
from spritz.model.job.step import Step, StepNode, StepSpec
from spritz.model.resources import NodeAllocation
from spritz.stepd import protocol
from spritz.stepd.reactor import Reactor

KEY_WRONG = "0" * 32


def until(condition: Callable[[], bool]) -> None:
    """Wait for the loop, which runs in the other thread."""
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline, "the loop has not come so far in 100 s"
        time.sleep(0.001)


class Supervisor:
    """One node's supervisor as the protocol describes it."""

    def __init__(
        self, listener: Listener, index: int, tasks: tuple[int, ...], *, key: str = "", job_id: int = 5
    ) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(100)
        self.socket.connect(protocol.parse_address(listener.address))
        self.tasks = tasks
        self.decoder = protocol.Decoder()
        hello = protocol.Hello(
            version=1,
            key=key or listener.key,
            node=f"n{index + 1}",
            node_index=index,
            job_id=job_id,
            step_id=0,
            task_ids=tasks,
        )
        self.socket.sendall(protocol.encode_hello(hello) + protocol.encode_started(tuple(range(100, 100 + len(tasks)))))

    def output(self, task: int, data: bytes, kind: int = protocol.STDOUT) -> None:
        self.socket.sendall(protocol.frames(kind, task, data))

    def message(self, text: bytes) -> None:
        self.socket.sendall(protocol.frame(protocol.MESSAGE, protocol.ALL_TASKS, text))

    def end(self, *statuses: int) -> None:
        for task, status in zip(self.tasks, statuses, strict=True):
            self.socket.sendall(protocol.frame(protocol.EXIT, task, protocol.pack_exit(status)))

    def done(self) -> None:
        self.socket.sendall(protocol.frame(protocol.DONE))
        self.socket.close()

    def receive(self) -> list[tuple[int, int, bytes]]:
        """Frames until one has come at least."""
        while True:
            found = self.decoder.feed(self.socket.recv(65536))
            if found:
                return found


class Bench:
    """A step of `counts` tasks a node and everything around it; `errors` is srun's standard error."""

    def __init__(
        self,
        tmp_path: Path,
        counts: tuple[int, ...],
        given: dict[str, str] | None = None,
        others: tuple[Step, ...] = (),
    ) -> None:
        self.listener = Listener()
        self.reactor = Reactor()
        self.said = io.StringIO()
        self.context = Context("srun", {}, "/", io.StringIO(), io.StringIO(), self.said)
        ranks = iter(range(sum(counts)))
        self.ranks = [tuple(next(ranks) for _ in range(count)) for count in counts]
        nodes = tuple(
            StepNode(allocation=NodeAllocation(node=f"n{index + 1}", cpus="ff"), task_ids=tasks)
            for index, tasks in enumerate(self.ranks)
        )
        step = Step(job_id=5, step_id=0, spec=StepSpec(), uid=os.getuid(), nodes=nodes, tasks=sum(counts))
        settings = Settings(given or {}, {"killwait": "0"}, {})
        self.ended: list[int] = []
        #: where the controller says that the step is (None: it does not answer)
        self.alive: set[tuple[int, str]] | None = None
        self.launch_errors: dict[tuple[int, str], str] = {}
        self.run = StepRun(
            self.reactor,
            self.listener,
            step,
            settings,
            self.context,
            end_step=self.ended.append,
            alive=lambda: self.alive,
            launch_error=lambda job_id, node: self.launch_errors.get((job_id, node), ""),
            others=others,
        )
        self.out = tmp_path / "out"
        self.err = tmp_path / "err"
        stdout, stderr = (os.open(path, os.O_CREAT | os.O_WRONLY) for path in (self.out, self.err))
        self.run.use_output(stdout, stderr, labelled="label" in (given or {}))

    def supervisor(self, index: int, key: str = "") -> Supervisor:
        return Supervisor(self.listener, index, self.ranks[index], key=key)

    def play(self, script: Callable[[], None]) -> int:
        """Run the loop while `script` plays the supervisors; the exit status."""
        failed: list[BaseException] = []

        def guarded() -> None:
            try:
                script()
            except BaseException as error:
                failed.append(error)
                self.reactor.stop()
                os.kill(os.getpid(), signal.SIGCHLD)

        thread = threading.Thread(target=guarded)
        thread.start()
        status = self.run.run()
        thread.join(100)
        if failed:
            raise failed[0]
        return status

    @property
    def errors(self) -> list[str]:
        return self.said.getvalue().splitlines()


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    return lambda *counts, **given: Bench(tmp_path, counts, {name.replace("_", "-"): v for name, v in given.items()})


def test_output_of_all_nodes_arrives_and_the_worst_status_is_sruns(bench: Callable[..., Bench]) -> None:
    made = bench(2, 1, label="")

    def script() -> None:
        first, second = made.supervisor(0), made.supervisor(1)
        first.output(0, b"zero\n")
        second.output(2, b"two\n", protocol.STDERR)
        first.end(0, 3 << 8)
        first.done()
        second.end(0)
        second.done()

    assert made.play(script) == 3
    assert made.out.read_bytes() == b"0: zero\n"
    assert made.err.read_bytes() == b"2: two\n"
    assert made.errors == ["srun: error: n1: task 1: Exited with exit code 3"]


def test_a_stranger_with_another_key_is_sent_away(bench: Callable[..., Bench]) -> None:
    made = bench(1)

    def script() -> None:
        stranger = made.supervisor(0, key=KEY_WRONG)
        with stranger.socket, suppress(ConnectionResetError, BrokenPipeError):  # closed before or after its lies
            stranger.output(0, b"lies\n")
            assert stranger.socket.recv(100) == b""
        honest = made.supervisor(0)
        honest.output(0, b"truth\n")
        honest.end(0)
        honest.done()

    assert made.play(script) == 0
    assert made.out.read_bytes() == b"truth\n"


def test_a_supervisor_that_dies_ends_the_step(bench: Callable[..., Bench]) -> None:
    made = bench(1, 1)

    def script() -> None:
        first, second = made.supervisor(0), made.supervisor(1)
        first.output(0, b"x\n")
        first.socket.close()
        until(lambda: bool(made.ended))
        second.end(15)
        second.done()

    assert made.play(script) == 143
    assert made.ended == [0]
    assert "srun: error: Aborting, io error and missing step on node 0" in made.errors
    assert "srun: Job step aborted: Waiting up to 2 seconds for job step to finish." in made.errors


@pytest.mark.parametrize("why", ["", "Job prolog failed: /p: exit status 3"])
def test_a_node_that_the_step_is_not_on_is_missed_and_the_others_are_ended(
    bench: Callable[..., Bench], why: str
) -> None:
    """The launch failed there: no supervisor will connect from it."""
    made = bench(1, 2)
    made.alive = {(5, "n1")}
    made.launch_errors = {(5, "n2"): why} if why else {}

    def script() -> None:
        first = made.supervisor(0)
        until(lambda: bool(made.ended))
        first.end(15)
        first.done()

    assert made.play(script) != 0
    assert f"srun: error: Task launch for StepId=5.0 failed on node n2{why and ': '}{why}" in made.errors
    assert f"srun: error: Application launch failed: {why or 'Job step not running'}" in made.errors
    assert not [line for line in made.errors if "n2: tasks 1-2" in line], "they never ran"
    assert made.ended == [0]


def test_supervisors_that_came_and_went_before_the_controllers_answer_are_not_missed(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many nodes, and a client that is slower than their tasks: nowhere is the step at work, and all have come."""
    monkeypatch.setattr("spritz.cli.jobs.launch.run._SOON_SECONDS", 0.001)
    b = bench(*(1,) * 30)

    def alive() -> set[tuple[int, str]]:
        # The loop stands still until this returns.
        for index in range(30):
            supervisor = b.supervisor(index)
            supervisor.output(index, b"%d\n" % index)
            supervisor.end(0)
            supervisor.done()
        return set()

    monkeypatch.setattr(b.run, "_alive", alive)
    assert b.run.run() == 0
    assert b.said.getvalue() == ""
    assert sorted(map(int, b.out.read_text().split())) == list(range(30))


def test_parts_of_a_step_in_other_components_are_one_step_for_srun(tmp_path: Path) -> None:
    node = StepNode(allocation=NodeAllocation(node="n1", cpus="ff"), task_ids=(1,))
    other = Step(job_id=6, step_id=0, spec=StepSpec(), uid=os.getuid(), nodes=(node,), tasks=1)
    made = Bench(tmp_path, (1,), {"label": ""}, others=(other,))
    path = tmp_path / "second"
    second_out = os.open(path, os.O_CREAT | os.O_WRONLY)
    made.run.use_output(second_out, second_out, labelled=True)

    def script() -> None:
        first = made.supervisor(0)
        second = Supervisor(made.listener, 0, (1,), job_id=6)
        first.output(0, b"zero\n")
        second.output(1, b"one\n")
        first.end(0)
        first.done()
        second.end(4 << 8)
        second.done()

    assert made.play(script) == 4
    assert made.out.read_bytes() == b"0: zero\n"
    assert path.read_bytes() == b"1: one\n"


def test_one_node_may_fail_with_no_kill(bench: Callable[..., Bench]) -> None:
    made = bench(1, 1, no_kill="")

    def script() -> None:
        first, second = made.supervisor(0), made.supervisor(1)
        first.socket.close()
        second.end(0)
        second.done()

    assert made.play(script) == 137
    assert made.ended == []


def test_kill_on_bad_exit_ends_the_step_at_the_first_failure(bench: Callable[..., Bench]) -> None:
    made = bench(2, kill_on_bad_exit="")

    def script() -> None:
        one = made.supervisor(0)
        one.socket.sendall(protocol.frame(protocol.EXIT, 1, protocol.pack_exit(3 << 8)))
        until(lambda: bool(made.ended))
        one.socket.sendall(protocol.frame(protocol.EXIT, 0, protocol.pack_exit(15)))
        one.done()

    assert made.play(script) == 143
    assert made.errors == [
        "srun: error: n1: task 1: Exited with exit code 3",
        "srun: launch/slurm: _step_signal: Terminating StepId=5.0",
        "srun: error: n1: task 0: Terminated",
        "srun: Force Terminated StepId=5.0",
    ]


def test_a_failure_on_a_node_that_ends_with_it_ends_the_others(bench: Callable[..., Bench]) -> None:
    """EXIT and DONE come in one reading."""
    made = bench(1, 1, kill_on_bad_exit="")

    def script() -> None:
        first, second = made.supervisor(0), made.supervisor(1)
        until(lambda: len(made.run.endings.states) == 2)
        exited = protocol.frame(protocol.EXIT, 1, protocol.pack_exit(3 << 8))
        second.socket.sendall(exited + protocol.frame(protocol.DONE))
        second.socket.close()
        until(lambda: bool(made.ended))
        first.end(15)
        first.done()

    assert made.play(script) == 143
    assert made.errors[0] == "srun: error: n2: task 1: Exited with exit code 3"


def test_a_failed_node_is_named_and_not_waited_for(bench: Callable[..., Bench]) -> None:
    made = bench(1, 2)
    made.alive = {(5, "n1")}
    made.launch_errors = {(5, "n2"): "Node failure on n2"}

    def script() -> None:
        first, second = made.supervisor(0), made.supervisor(1)
        first.message(b"slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT X DUE TO NODE FAILURE, SEE LOG ***\n")
        until(lambda: "Node failure" in made.said.getvalue())
        first.end(15)
        first.done()
        second.socket.close()

    assert made.play(script) == 143
    assert made.errors[-2:] == ["srun: error: Node failure on n2", "srun: error: n1: task 0: Terminated"]


def test_nodes_that_are_given_up_later_than_the_first_are_not_waited_for(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rack whose switch has died: the word came when the controller gave the first of its nodes up."""
    monkeypatch.setattr("spritz.cli.jobs.launch.run._FAILED_SECONDS", 0.05)
    made = bench(1, 1, 1)
    made.alive = {(5, "n3")}
    made.launch_errors = {(5, "n2"): "Node failure on n2"}

    def script() -> None:
        first, second, third = (made.supervisor(rank) for rank in range(3))
        first.message(b"slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT X DUE TO NODE FAILURE, SEE LOG ***\n")
        until(lambda: "Node failure" in made.said.getvalue())
        first.end(15)
        first.done()
        made.launch_errors[5, "n3"] = "Node failure on n3"
        until(lambda: "Node failure on n3" in made.said.getvalue())
        for cut_off in (second, third):
            cut_off.socket.close()

    assert made.play(script) == 143
    assert "srun: error: Timed out waiting for job step to complete" not in made.errors


def without_n2(bench: Callable[..., Bench], **options: str) -> Bench:
    """A step that goes on, by --no-kill, on n1 and n3, and whose n2 has failed."""
    made = bench(1, 1, 1, no_kill="", **options)
    made.alive = {(5, "n1"), (5, "n3")}
    made.launch_errors = {(5, "n2"): "Node failure on n2"}
    return made


def test_a_failed_node_is_named_once_and_the_others_go_on_with_no_kill(bench: Callable[..., Bench]) -> None:
    made = without_n2(bench)

    def script() -> None:
        first, second, third = (made.supervisor(rank) for rank in range(3))
        first.message(b"slurmstepd: error: Node failure on n[2,7]\n")
        until(lambda: "Node failure" in made.said.getvalue())
        third.message(b"slurmstepd: error: Node failure on n2\n")
        for node in (first, third):
            node.end(0)
            node.done()
        second.socket.close()

    assert made.play(script) == 0, "the status of the tasks that ended, as in Slurm"
    assert made.errors == ["srun: error: Node failure on n2"]
    assert made.ended == []


def test_a_lost_node_ends_nothing_with_kill_on_bad_exit_and_no_kill(bench: Callable[..., Bench]) -> None:
    made = without_n2(bench, kill_on_bad_exit="")

    def script() -> None:
        first, second, third = (made.supervisor(rank) for rank in range(3))
        second.socket.close()
        until(lambda: "Node failure" in made.said.getvalue())
        for node in (first, third):
            node.end(0)
            node.done()

    assert made.play(script) == 0
    assert made.errors == ["srun: error: Node failure on n2"]
    assert made.ended == []


def test_the_cancelled_line_announces_the_end(bench: Callable[..., Bench]) -> None:
    made = bench(1, 1)

    def script() -> None:
        for index, one in enumerate((made.supervisor(0), made.supervisor(1))):
            one.message(b"slurmstepd: error: *** STEP 5.0 ON n%d CANCELLED AT now ***\n" % (index + 1))
            one.end(15)
            one.done()

    assert made.play(script) == 143
    assert made.err.read_bytes() == b"slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT now ***\n"
    assert "srun: Job step aborted: Waiting up to 2 seconds for job step to finish." in made.errors
    assert not any("Force Terminated" in line for line in made.errors)


def test_standard_input_waits_for_credit_and_ends(bench: Callable[..., Bench], tmp_path: Path) -> None:
    made = bench(1)
    content = os.urandom(1 << 20)
    (tmp_path / "in").write_bytes(content)
    made.run.use_input(os.open(tmp_path / "in", os.O_RDONLY), None)
    got = bytearray()

    def script() -> None:
        one = made.supervisor(0)
        uncredited = 0
        while True:
            for kind, _, payload in one.receive():
                if kind == protocol.STDIN_EOF:
                    one.end(0)
                    one.done()
                    return
                got.extend(payload)
                uncredited += len(payload)
                assert uncredited <= protocol.STDIN_WINDOW_BYTES
                if uncredited > protocol.STDIN_WINDOW_BYTES // 2:
                    credit = protocol.pack_number(uncredited)
                    one.socket.sendall(protocol.frame(protocol.STDIN_CREDIT, protocol.ALL_TASKS, credit))
                    uncredited = 0

    assert made.play(script) == 0
    assert (len(got), bytes(got) == content) == (len(content), True)


def test_ctrl_c_tells_the_states_first_and_ends_the_step_the_second_time(bench: Callable[..., Bench]) -> None:
    made = bench(2)
    signals = StepSignals(made.run)

    def script() -> None:
        one = made.supervisor(0)
        until(lambda: bool(made.run.endings.states))
        for _ in range(2):
            made.reactor.after(0, lambda: signals(signal.SIGINT))
        one.output(0, b"wake\n")
        assert [protocol.unpack_number(payload) for kind, _, payload in one.receive() if kind == protocol.SIGNAL] == [2]
        one.end(2, 2)
        one.done()

    assert made.play(script) == 130
    assert made.ended == [0]
    assert made.errors == [
        "srun: interrupt (one more within 1 sec to abort)",
        "srun: StepId=5.0 tasks 0-1: running",
        "srun: sending Ctrl-C to StepId=5.0",
        "srun: forcing job termination",
        "srun: Job step aborted: Waiting up to 2 seconds for job step to finish.",
    ]


def test_a_step_that_does_not_end_after_ctrl_c_has_not_succeeded(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes cannot be killed: srun leaves, with the status of tasks that were killed."""
    monkeypatch.setattr("spritz.cli.jobs.launch.run._ABORT_MARGIN_SECONDS", 0)
    made = bench(2)
    signals = StepSignals(made.run)

    def script() -> None:
        one = made.supervisor(0)
        until(lambda: bool(made.run.endings.states))
        for _ in range(2):
            made.reactor.after(0, lambda: signals(signal.SIGINT))
        one.output(0, b"wake\n")
        until(lambda: "Timed out" in made.said.getvalue())
        one.socket.close()

    assert made.play(script) == 137
    assert made.errors[-1] == "srun: error: Timed out waiting for job step to complete"


def test_a_user_signal_goes_to_the_tasks(bench: Callable[..., Bench]) -> None:
    made = bench(1)
    signals = StepSignals(made.run)

    def script() -> None:
        one = made.supervisor(0)
        until(lambda: bool(made.run.endings.states))
        made.reactor.after(0, lambda: signals(signal.SIGUSR1))
        one.output(0, b"wake\n")
        assert protocol.unpack_number(one.receive()[0][2]) == signal.SIGUSR1
        one.end(0)
        one.done()

    assert made.play(script) == 0


def test_garbage_from_a_supervisor_is_its_end(bench: Callable[..., Bench]) -> None:
    made = bench(1)

    def script() -> None:
        one = made.supervisor(0)
        until(lambda: bool(made.run.endings.states))
        one.socket.sendall(b"\xff" * 100)
        assert one.socket.recv(10) == b""
        one.socket.close()

    assert made.play(script) == 137
