"""Steps with a client: standard I/O, signals, terminals, attachment, and clients that vanish."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spritz.stepd import control, protocol, spec

from .conftest import PATIENCE_SECONDS, Client, Running, TaskSpec, Zygote, wait_until


def step(zygote: Zygote, client: Client, command: str, tasks: int = 1, **fields: Any) -> Running:
    """A step of some tasks that run one shell command, with all I/O through the client."""
    specs = tuple(
        TaskSpec(rank, ("sh", "-c", command), (f"SLURM_PROCID={rank}",), (), spec.CLIENT, spec.CLIENT, spec.CLIENT)
        for rank in range(tasks)
    )
    return zygote.launch(tasks=specs, io_address=client.address, io_key="secret", **fields)


def test_two_tasks_send_whole_lines_before_their_exit_and_then_done(zygote: Zygote, client: Client) -> None:
    command = "printf ab; sleep 0.05; echo c; echo err$SLURM_PROCID >&2; printf unfinished; exit $SLURM_PROCID"
    running = step(zygote, client, command, tasks=2)
    hello = client.accept()
    assert (hello.key, hello.node, hello.job_id, hello.step_id, hello.task_ids) == ("secret", "n1", 5, 0, (0, 1))
    client.read_until(protocol.DONE)
    for rank in (0, 1):
        kinds = [kind for kind, task, _ in client.frames if task == rank]
        assert client.output(rank) == b"abc\nunfinished"
        assert client.output(rank, protocol.STDERR) == b"err%d\n" % rank
        assert set(kinds[kinds.index(protocol.EXIT) + 1 :]) <= {protocol.STDIN_CREDIT}
    assert (protocol.STDOUT, 0, b"abc\n") in client.frames
    assert client.exits() == {0: 0, 1: 1 << 8}
    assert protocol.decode_started(next(p for k, _, p in client.frames if k == protocol.STARTED)).pids == tuple(
        running.started().pids
    )
    assert [end.status for end in running.result().tasks] == [0, 256]


def test_output_of_megabytes_arrives_whole_through_a_slow_client(zygote: Zygote, client: Client) -> None:
    running = step(zygote, client, "head -c 8000000 /dev/zero | tr '\\0' x; echo", tasks=1)
    client.accept()
    running.started()
    running.connection.settimeout(0.3)
    try:
        stalled = not running.connection.recv(1)
    except TimeoutError:
        stalled = True
    assert stalled, "the task ended although its output had not been read"
    running.connection.settimeout(None)
    client.read_until(protocol.DONE)
    assert client.output(0) == b"x" * 8_000_000 + b"\n"
    assert running.result().tasks[0].status == 0


def test_signals_get_through_while_the_client_does_not_read(zygote: Zygote, client: Client) -> None:
    running = step(zygote, client, "exec cat /dev/zero")
    client.accept()
    running.started()
    client.send(protocol.SIGNAL, protocol.ALL_TASKS, protocol.pack_number(signal.SIGTERM))
    client.read_until(protocol.DONE)
    assert client.exits() == {0: signal.SIGTERM}


def test_standard_input_goes_to_all_tasks_or_to_one_and_is_credited(zygote: Zygote, client: Client) -> None:
    step(zygote, client, "cat", tasks=2)
    client.accept()
    client.send(protocol.STDIN, protocol.ALL_TASKS, b"both\n")
    client.send(protocol.STDIN, 1, b"only one\n")
    client.send(protocol.STDIN_EOF)
    client.read_until(protocol.DONE)
    assert client.output(0) == b"both\n"
    assert client.output(1) == b"both\nonly one\n"
    credited = sum(protocol.unpack_number(p) for k, _, p in client.frames if k == protocol.STDIN_CREDIT)
    assert credited == len(b"both\n") + len(b"only one\n")


def test_unread_input_delays_neither_signals_nor_the_end(zygote: Zygote, client: Client) -> None:
    step(zygote, client, "sleep 1000", tasks=2)
    client.accept()
    client.read_until(protocol.STARTED)
    client.send(protocol.STDIN, protocol.ALL_TASKS, b"y" * protocol.STDIN_WINDOW_BYTES)
    client.send(protocol.TERMINATE, protocol.ALL_TASKS, protocol.pack_number(1))
    client.read_until(protocol.DONE)
    assert set(client.exits().values()) == {signal.SIGTERM}


def test_input_for_a_task_that_closed_it_is_dropped_and_credited(zygote: Zygote, client: Client) -> None:
    step(zygote, client, "exec <&-; echo closed; read never < /dev/zero & wait")
    client.accept()
    client.read_until(protocol.STDOUT)
    client.send(protocol.STDIN, 0, b"z" * 1000)
    client.read_until(protocol.STDIN_CREDIT)
    client.send(protocol.SIGNAL, 0, protocol.pack_number(signal.SIGKILL))
    client.read_until(protocol.DONE)


def test_what_is_for_a_task_of_another_node_is_dropped(zygote: Zygote, client: Client) -> None:
    running = step(zygote, client, "cat")
    client.accept()
    client.send(protocol.STDIN, 7, b"not here\n")
    client.send(protocol.SIGNAL, 7, protocol.pack_number(signal.SIGKILL))
    client.send(protocol.STDIN, 0, b"here\n")
    client.send(protocol.STDIN_EOF)
    client.read_until(protocol.DONE)
    assert client.output(0) == b"here\n"
    assert running.result().tasks[0].status == 0


def test_a_command_that_does_not_exist_is_named_and_exits_2(zygote: Zygote, client: Client) -> None:
    specs = (TaskSpec(0, ("nosuchcmd",), (), (), spec.CLIENT, spec.CLIENT, spec.CLIENT),)
    zygote.launch(tasks=specs, io_address=client.address, io_key="k")
    client.accept()
    client.read_until(protocol.DONE)
    assert client.output(0, protocol.STDERR) == b"slurmstepd: error: execve(): nosuchcmd: No such file or directory\n"
    assert client.exits() == {0: 2 << 8}


def test_a_client_that_vanishes_takes_the_step_with_it(zygote: Zygote, client: Client) -> None:
    running = step(zygote, client, "trap '' TERM; echo ready; sleep 1000 & wait; sleep 1000", tasks=2)
    client.accept()
    for _ in range(2):
        client.read_until(protocol.STDOUT)
    pids = running.started().pids
    client.close()
    assert {end.status for end in running.result().tasks} == {signal.SIGKILL}
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_client_that_vanishes_before_the_tasks_start_takes_the_step_with_it(zygote: Zygote, client: Client) -> None:
    path = zygote.spool.parent / "input"
    path.touch()
    task = TaskSpec(0, ("touch", str(zygote.spool.parent / "ran")), stdin=str(path), stdout=spec.CLIENT)
    told = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with path.open("r+b") as held:
            # The supervisor waits for the end of the lease in opening its files; then it complains of the directory.
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            running = zygote.launch(tasks=(task,), io_address=client.address, io_key="key", work_dir="/nowhere")
            client.accept()
            client.close()
    finally:
        signal.signal(signal.SIGIO, told)
    assert running.result().error_kind == "io"
    assert not (zygote.spool.parent / "ran").exists()


def test_a_client_that_is_not_there_is_an_error_and_nothing_runs(zygote: Zygote, client: Client) -> None:
    client.close()
    running = step(zygote, client, "touch ran")
    result = running.result()
    assert result.error_kind == "io"
    assert "Connection refused" in result.error
    assert not (zygote.spool.parent / "ran").exists()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[socket.socket]:
    """What leads to other machines: bound, and not listening yet, as while it is started again."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"\0spritz-test-{os.getpid()}-{tmp_path.name}-daemon")
        made.settimeout(PATIENCE_SECONDS)
        yield made


def far_step(zygote: Zygote, daemon: socket.socket, command: str) -> Running:
    """A step of one task whose client is on another machine."""
    name = daemon.getsockname()[1:].decode()
    task = TaskSpec(0, ("sh", "-c", command), (), (), spec.NOTHING, spec.CLIENT, spec.CLIENT)
    address = f"at:elsewhere:@{name}:unix:@spritz-test-no-such-client"
    running = zygote.launch(tasks=(task,), io_address=address, io_key="secret", io_numbered=True)
    running.order(control.Measure())
    measured = running.report()  # so it has not given up, and reads orders
    assert isinstance(measured, control.Measured)
    assert not measured.pids
    return running


def led(daemon: socket.socket) -> socket.socket:
    """The connection of a supervisor that asks to be led to its client."""
    daemon.listen()
    connection, _ = daemon.accept()
    connection.settimeout(PATIENCE_SECONDS)
    size = int.from_bytes(connection.recv(2), "big")
    assert b"spritz-test-no-such-client" in connection.recv(size)
    return connection


def say_absent(daemon: socket.socket) -> None:
    """Lead a supervisor to the other machine, where its client is gone."""
    with led(daemon) as connection:
        connection.sendall(protocol.ABSENT)


def test_a_step_begins_when_the_daemon_that_leads_to_its_client_is_back(zygote: Zygote, daemon: socket.socket) -> None:
    """Orders that come before are for its tasks: one that is suspended until then stands still."""
    running = far_step(zygote, daemon, "exec sleep 1000")
    running.order(control.Suspend(False, 0.0))
    with led(daemon) as connection:
        connection.sendall(protocol.REACHED)
        connection.recv(65536)  # HELLO
        connection.sendall(protocol.frame(protocol.TAKEN, protocol.ALL_TASKS, protocol.pack_count(0)))
        (pid,) = running.started().pids
        wait_until(lambda: " T " in Path(f"/proc/{pid}/stat").read_text(), "the task is stopped")
        running.order(control.Terminate("", 0.0))
        assert running.result().tasks[0].status == signal.SIGKILL
    say_absent(daemon)


@pytest.mark.parametrize("answers", [True, False])
def test_a_step_without_its_far_client_is_an_error_at_once_or_when_it_is_ended(
    zygote: Zygote, daemon: socket.socket, answers: bool
) -> None:
    running = far_step(zygote, daemon, "touch ran")
    if answers:
        say_absent(daemon)
    else:
        running.order(control.Terminate("", 0.0))
    result = running.result()
    assert (result.launch_failed, result.error_kind) == (False, "io")
    text = "connect io: the client has gone" if answers else "the step was ended before its client was reached"
    assert result.error == text
    assert not (zygote.spool.parent / "ran").exists()
    if not answers:
        say_absent(daemon)


def test_a_task_with_a_terminal_sees_its_size_and_ctrl_c(zygote: Zygote, client: Client) -> None:
    command = "test -t 0 && test -t 1 && stty size; trap 'stty size; exit 9' INT; echo ready; read line"
    step(zygote, client, command, pty=True, pty_rows=33, pty_columns=101)
    client.accept()
    while b"ready" not in client.output(0):
        client.read_until(protocol.STDOUT)
    assert client.output(0).startswith(b"33 101\r\n")
    client.send(protocol.WINDOW_SIZE, 0, protocol.pack_window(20, 60))
    client.send(protocol.STDIN, 0, b"\x03")
    client.read_until(protocol.DONE)
    assert b"20 60\r\n" in client.output(0)
    assert client.exits() == {0: 9 << 8}


def test_unbuffered_output_comes_as_it_is_written(zygote: Zygote, client: Client) -> None:
    step(zygote, client, "test -t 1 && printf part; read line; echo", unbuffered=True)
    client.accept()
    client.read_until(protocol.STDOUT)
    assert client.output(0) == b"part"
    client.send(protocol.STDIN_EOF)
    client.read_until(protocol.DONE)
    assert client.output(0) == b"part\n"


def test_an_attached_client_sees_what_follows_and_may_leave(zygote: Zygote, client: Client) -> None:
    running = step(zygote, client, "echo first; read line; echo $line", tasks=2)
    client.accept()
    client.read_until(protocol.STDOUT)
    other = Client(client.address.removeprefix("unix:@") + "-b")
    running.order(control.Attach(other.address, "other"))
    hello = other.accept()
    assert (hello.key, hello.attached) == ("other", True)
    other.read_until(protocol.STARTED)
    leaver = Client(client.address.removeprefix("unix:@") + "-c")
    running.order(control.Attach(leaver.address, "leaver"))
    leaver.accept()
    leaver.close()
    other.send(protocol.STDIN, 1, b"second\n")
    client.send(protocol.STDIN_EOF, 0)
    for reader in (other, client):
        reader.read_until(protocol.DONE)
        assert reader.exits() == {0: 0, 1: 0}
        assert reader.output(1).endswith(b"second\n")
    other.close()


def test_messages_reach_the_client_when_the_output_is_its_own(zygote: Zygote, client: Client) -> None:
    running = step(zygote, client, "sleep 1000")
    client.accept()
    client.read_until(protocol.STARTED)
    running.order(control.Notify("hello there"))
    running.order(control.Notify("hello client", to_client=True))
    running.order(control.Terminate("error: *** STEP 5.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", 1))
    client.read_until(protocol.DONE)
    assert client.messages() == (
        "slurmstepd: hello there\nslurmstepd: hello client\n"
        "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***\n"
    )


@pytest.mark.parametrize(
    ("cause", "said"), [(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", True), (" DUE TO TIME LIMIT", False)]
)
def test_another_than_the_first_node_tells_the_client_of_a_failed_node(
    zygote: Zygote, client: Client, cause: str, said: bool
) -> None:
    """It may be the first node that failed, which tells the client of all other ends."""
    running = step(zygote, client, "sleep 1000", node_index=1)
    client.accept()
    client.read_until(protocol.STARTED)
    line = f"error: *** STEP 5.0 ON n2 CANCELLED AT 2026-01-01T00:00:00{cause} ***"
    running.order(control.Terminate(line, 1))
    client.read_until(protocol.DONE)
    assert client.messages() == (f"slurmstepd: {line}\n" if said else "")


def test_a_daemon_that_connects_again_is_told_everything(zygote: Zygote, client: Client) -> None:
    import socket

    running = step(zygote, client, "read line")
    client.accept()
    first = running.started()
    running.connection.close()
    again = socket.socket(socket.AF_UNIX)
    parent = os.open(running.directory, os.O_PATH)
    again.connect(f"/proc/self/fd/{parent}/{spec.CONTROL}")
    os.close(parent)
    adopted = Running(running.directory, again)
    assert adopted.started() == first
    client.send(protocol.STDIN_EOF)
    assert adopted.result().tasks[0].status == 1 << 8
    adopted.order(control.Forget())
    again.close()


def test_usage_is_told_task_by_task(zygote: Zygote, client: Client) -> None:
    """The second of two tasks uses more processor time and memory; what runs is sampled too."""
    busy = "import time; keep = b'x' * (60 << 20)\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    command = f'test $SLURM_PROCID = 0 || exec python3 -c "{busy}"'
    running = step(zygote, client, command, tasks=2, sample_seconds=1000)
    client.accept()
    running.started()
    client.read_until(protocol.STDOUT)
    running.order(control.Measure())
    assert isinstance(running.report(), control.Measured)
    client.send(protocol.STDIN, 1, b"\n")
    client.read_until(protocol.DONE)
    usage = running.result().usage
    found = {metric.name: metric for metric in usage.metrics}
    assert (found["cpu"].largest_task, found["cpu"].smallest_task) == (1, 0)
    assert found["cpu"].total >= found["cpu"].largest >= 250
    assert found["mem"].largest > 60 << 20
    assert (found["mem"].largest_task, found["vmem"].largest_task) == (1, 1)
    assert usage.vm_peak_mib > 60
