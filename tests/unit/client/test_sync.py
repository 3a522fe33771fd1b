"""Commands reach their daemon, are told in Slurm's words when they cannot, and never hang."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import NoneType

import psutil
import pytest
from msgspec import structs

from spritz.cli.administration.control.session import Session
from spritz.cli.call.context import Context
from spritz.client.channel.admission import Limits
from spritz.client.channel.handling import DEFERRED, Call, Deferred
from spritz.client.command import sync
from spritz.client.command.sync import Connection, connect_address, connect_controller
from spritz.client.errors import CallTimeout, ClientError, ConnectionLost, NoDaemonHere, RemoteError, RemoteHost
from spritz.client.locate import ControllerConfig
from spritz.client.trust.same_machine import refuse_remote
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.rejection import Rejection
from spritz.model.tokens import UseToken
from spritz.runtime.sockets import unix_socket
from spritz.wire.envelope import Failure, Hello, encode, encode_failure
from tests.unit.client.conversation import (
    Answer,
    Ask,
    Count,
    Crash,
    Number,
    Person,
    Silence,
    Who,
    abstract_name,
    crash,
    echo,
    serving,
    who,
)


async def count(request: Count, call: Call):  # type: ignore[no-untyped-def]  # an async generator of Number
    for value in range(request.upto):
        yield Number(value=value)


def leading(request: Ping, call: Call) -> Pong:
    return Pong(host="ctl", pid=1, version="", software="", started_at=0.0, now=0.0)


def silent(request: Silence, call: Call) -> Deferred:
    return DEFERRED


def config(
    port: int, *, timeout: float = 100.0, name: str = "t", hosts: tuple[str, ...] = ("127.0.0.1",)
) -> ControllerConfig:
    return ControllerConfig(
        path="slurm.conf",
        cluster_name=name,
        hosts=hosts,
        port=port,
        slurm_user=str(os.getuid()),
        message_timeout_seconds=timeout,
    )


@contextmanager
def peer_that(behave: bytes | None) -> Iterator[int]:
    """A TCP port whose server sends these bytes to its client and then is silent; None: it closes once it was asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def body() -> None:
        connection, _ = listener.accept()
        with connection:
            if behave is not None:
                connection.sendall(behave)
                done.wait(100)
            else:
                connection.recv(1)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        done.set()
        thread.join(100)
        listener.close()


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_a_call_is_answered_over_the_unix_socket_and_over_tcp() -> None:
    name = abstract_name()
    with serving({Ask: echo}, name) as server:
        for address in (name, ("127.0.0.1", server.port)):
            with connect_address(address, timeout=100) as connection:
                assert connection.call(Ask(text="hé\0"), Answer) == Answer(text="hé\0")
                assert connection.call(Ask(text="again"), Answer).text == "again"
                assert connection.peer is not None
                assert connection.peer.role == "slurmctld"


def test_the_kernel_vouches_for_local_callers_on_both_kinds_of_socket() -> None:
    name = abstract_name()
    with serving({Who: who}, name) as server:
        with connect_address(name, timeout=100) as connection:
            assert connection.call(Who(), Person) == Person(uid=os.getuid(), via="unix")
        with connect_address(("127.0.0.1", server.port), timeout=100) as connection:
            assert connection.call(Who(), Person) == Person(uid=os.getuid(), via="tcp")


def test_a_thousand_requests_on_their_way_at_once_are_all_answered() -> None:
    with serving({Ask: echo}) as server, connect_address(("127.0.0.1", server.port), timeout=100) as connection:
        first = connection.send_many([Ask(text=str(n)) for n in range(1000)])
        responses = [connection.receive() for _ in range(1000)]
    assert [response.id for response in responses] == list(range(first, first + 1000))
    assert all(response.error is None for response in responses)


def test_a_large_request_and_a_large_answer_pass() -> None:
    text = "x" * 5_000_000
    with serving({Ask: echo}) as server, connect_address(("127.0.0.1", server.port), timeout=100) as connection:
        assert connection.call(Ask(text=text), Answer).text == text


def test_a_stream_yields_each_item_and_the_connection_stays_usable() -> None:
    with serving({Count: count, Ask: echo}) as server:
        with connect_address(("127.0.0.1", server.port), timeout=100) as connection:
            values = [item.value for item in connection.stream(Count(upto=3000), Number)]
            assert values == list(range(3000))
            assert list(connection.stream(Count(upto=0), Number)) == []
            assert connection.call(Ask(text="still here"), Answer).text == "still here"


def test_a_rejection_arrives_with_slurms_number_text_and_hint() -> None:
    def refuse(request: Ask, call: Call) -> Rejection:
        return Rejection(code="ESLURM_INVALID_PARTITION_NAME", hint="did you mean gpu?")

    with serving({Ask: refuse}) as server, connect_address(("127.0.0.1", server.port), timeout=100) as connection:
        with pytest.raises(RemoteError) as refused:
            connection.call(Ask(), Answer)
    error = refused.value
    assert (error.code, error.errno, error.message) == (
        "ESLURM_INVALID_PARTITION_NAME",
        2000,
        "Invalid partition name specified",
    )
    assert (error.hint, error.exit_code) == ("did you mean gpu?", 1)


def test_a_fault_in_a_handler_is_reported_without_details_and_harms_no_other_call() -> None:
    with serving({Crash: crash, Ask: echo}) as server:
        with connect_address(("127.0.0.1", server.port), timeout=100) as connection:
            with pytest.raises(RemoteError, match="internal error of the daemon") as refused:
                connection.call(Crash(), Answer)
            assert "ZeroDivision" not in refused.value.message
            assert connection.call(Ask(text="alive"), Answer).text == "alive"


def test_an_unknown_request_and_an_answer_of_another_type_are_errors() -> None:
    with serving({Ask: echo}) as server, connect_address(("127.0.0.1", server.port), timeout=100) as connection:
        with pytest.raises(RemoteError, match="'Who' is not a request"):
            connection.call(Who(), Person)
        with pytest.raises(ClientError, match="Unexpected message received"):
            connection.call(Ask(), Person)


def test_an_answer_without_a_body_is_none() -> None:
    with serving({Ask: lambda request, call: None}) as server:
        with connect_address(("127.0.0.1", server.port), timeout=100) as connection:
            connection.call(Ask(), NoneType)


@pytest.mark.parametrize("behaviour", [b"", b"\0\0\1\0 half a frame"], ids=["silent", "half"])
def test_a_peer_that_does_not_answer_costs_the_timeout(behaviour: bytes) -> None:
    with peer_that(behaviour) as port:
        started = time.monotonic()
        with connect_controller(config(port, timeout=0.3)) as connection, pytest.raises(CallTimeout) as failed:
            connection.call(Ask(), Answer)
        assert time.monotonic() - started > 0.25
    assert failed.value.message == "Socket timed out on send/recv operation"


@pytest.mark.parametrize("timeout", [None, 1000.0])
def test_a_peer_that_says_no_hello_is_not_waited_for_as_long_as_an_answer(timeout: float | None) -> None:
    with (
        peer_that(b"") as port,
        connect_address(("127.0.0.1", port), timeout=0.2) as connection,
        pytest.raises(CallTimeout),
    ):
        connection.call(Ask(), Answer, timeout=timeout)


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 100, b"\0\0\0\x01\xc0", b"\0\0\0\x00"]
)
def test_garbage_from_the_peer_is_an_error_at_once(garbage: bytes) -> None:
    with peer_that(garbage) as port, connect_controller(config(port)) as connection:
        with pytest.raises(ClientError, match="Unexpected message received"):
            connection.call(Ask(), Answer)


def test_a_peer_that_hangs_up_is_a_receive_failure() -> None:
    with peer_that(None) as port, connect_address(("127.0.0.1", port), timeout=100) as connection:
        with pytest.raises(ConnectionLost, match=r"Unable to contact slurm controller \((receive|send) failure\)"):
            connection.call(Ask(), Answer)
    with peer_that(None) as port, pytest.raises(ClientError, match="Unable to contact slurm controller"):
        with connect_controller(config(port)) as connection:
            connection.call(Ask(), Answer)


#: RFC 5737, RFC 3849: addresses for documentation, which no machine has.
ELSEWHERE = ("192.0.2.1", "2001:db8::1")


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_controller_on_another_machine_is_refused_by_the_name_of_its_key(host: str) -> None:
    remote = structs.replace(config(unused_port(), hosts=(host,)), hosts_key="SlurmctldAddr")
    with pytest.raises(RemoteHost) as refused:
        connect_controller(remote, wait_seconds=100)
    assert refused.value.message.startswith(f"slurm.conf: SlurmctldAddr={host}: {host} is another machine")
    assert refused.value.code == "SLURM_PROTOCOL_AUTHENTICATION_ERROR"
    with pytest.raises(RemoteHost, match="is another machine"):
        connect_address((host, 6819), timeout=100)


def test_a_command_waits_for_the_daemon_of_a_machine_that_has_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmd or sackd is started again, and with it its socket is away for a moment."""
    remote = structs.replace(
        config(unused_port(), name=f"t{os.getpid()}w", hosts=ELSEWHERE[:1]), path=str(tmp_path / "slurm.conf")
    )
    (tmp_path / "slurm.key").touch(mode=0)
    with ExitStack() as later:
        monkeypatch.setattr(sync, "sleep", lambda _: later.enter_context(unix_socket(remote.socket_name)))
        with connect_controller(remote, wait_seconds=100):
            pass
    # One that does not come back is told soon, however long MessageTimeout is.
    monkeypatch.setattr(sync, "sleep", lambda _: None)
    monkeypatch.setattr(sync, "RELAY_START_SECONDS", 0.0)
    with pytest.raises(RemoteHost):
        connect_controller(remote, wait_seconds=100_000)


def test_a_backup_controller_on_another_machine_is_passed_over() -> None:
    with serving({Ask: echo, Ping: leading}) as server:
        with connect_controller(config(server.port, hosts=(ELSEWHERE[0], "127.0.0.1"))) as connection:
            assert connection.call(Ask(text="here"), Answer).text == "here"
    with pytest.raises(NoDaemonHere, match="connect failure") as failed:
        connect_controller(config(unused_port(), hosts=("127.0.0.1", ELSEWHERE[0])))
    assert "Connection refused" in failed.value.hint
    assert "slurmctld, slurmd or sackd of this machine, and none of them runs" in failed.value.hint


def test_on_the_machine_of_a_controller_that_does_not_run_a_command_waits_for_its_daemons_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not as long as for a leader: without a daemon of this machine none can be found."""
    here = config(unused_port(), name=f"t{os.getpid()}d", hosts=("127.0.0.1", ELSEWHERE[0]))
    with ExitStack() as later:
        begun: list[object] = []

        def begin(_seconds: float) -> None:
            """slurmd takes the socket's name."""
            if not begun:
                begun.append(later.enter_context(serving({Ask: echo, Ping: leading}, here.socket_name)))

        monkeypatch.setattr(sync, "sleep", begin)
        with connect_controller(here, wait_seconds=100) as connection:
            assert connection.call(Ask(text="here"), Answer).text == "here"
    monkeypatch.setattr(sync, "sleep", lambda _: None)
    monkeypatch.setattr(sync, "RELAY_START_SECONDS", 0.0)
    with pytest.raises(NoDaemonHere):
        connect_controller(here, wait_seconds=100_000)


def test_a_daemon_does_not_start_with_a_host_that_is_another_machine() -> None:
    refuse_remote([("SlurmctldHost", host) for host in ("localhost", "127.0.0.1", "127.0.1.1", "no-such-host.invalid")])
    refuse_remote([("SlurmctldHost", address) for address in own_interface_addresses()])
    refuse_remote([("SlurmctldHost", "x" * 300)])
    for host in ELSEWHERE:
        with pytest.raises(RemoteHost, match=f"AccountingStorageHost={host}: {host} is another machine"):
            refuse_remote([("SlurmctldHost", "localhost"), ("AccountingStorageHost", host)])


def own_interface_addresses() -> list[str]:
    """Link-local ones want a scope, and are left out."""
    families = (socket.AF_INET, socket.AF_INET6)
    found = [
        address for addresses in psutil.net_if_addrs().values() for address in addresses if address.family in families
    ]
    return [one.address for one in found if not one.address.startswith("fe80")]


def test_the_server_at_a_port_must_be_roots_or_our_own() -> None:
    with serving({Ask: echo}) as server:
        with pytest.raises(ClientError, match="Protocol authentication error"):
            connect_address(("127.0.0.1", server.port), timeout=100, owners=frozenset((987654,)))


def test_a_server_of_another_release_is_named() -> None:
    theirs = Hello(magic="spritz", version_min=7, version_max=9, software="spritz 9.1", role="slurmctld")
    with peer_that(encode(theirs)) as port, connect_controller(config(port)) as connection:
        with pytest.raises(ClientError, match=r"spritz 9\.1 \(slurmctld\) speaks protocol 7 to 9"):
            connection.call(Ask(), Answer)


def test_a_server_that_refuses_the_connection_is_heard() -> None:
    refusal = Failure(code="SLURM_PROTOCOL_VERSION_ERROR", errno=1005, message="too old", exit_code=3)
    with peer_that(encode_failure(0, refusal)) as port, connect_controller(config(port)) as connection:
        with pytest.raises(RemoteError, match="too old") as refused:
            connection.call(Ask(), Answer)
    assert refused.value.exit_code == 3


def test_no_controller_is_worded_as_slurm_words_it_and_says_where_it_was_looked_for() -> None:
    port = unused_port()
    with pytest.raises(ClientError) as failed:
        connect_controller(config(port))
    assert failed.value.message == "Unable to contact slurm controller (connect failure)"
    assert failed.value.code == "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR"
    assert f"127.0.0.1:{port}: Connection refused" in failed.value.hint


def test_a_host_that_does_not_exist_is_passed_over_for_the_next() -> None:
    with serving({Ask: echo, Ping: leading}) as server:
        hosts = ("no-such-host.invalid", "127.0.0.1")
        with connect_controller(config(server.port, hosts=hosts)) as connection:
            assert connection.call(Ask(text="second"), Answer).text == "second"


def test_a_controller_that_stands_by_is_passed_over_and_named() -> None:
    def stands_by(request: Ping, call: Call) -> Pong:
        return structs.replace(leading(request, call), leading=False, leader="ctl9")

    with serving({Ping: stands_by}) as server:
        with pytest.raises(ClientError, match="Slurm backup controller in standby mode") as failed:
            connect_controller(config(server.port, hosts=("127.0.0.1", "no-such-host.invalid")))
    assert f"127.0.0.1:{server.port}: ctl stands by: ctl9 leads" in failed.value.hint


def test_a_command_asks_again_more_rarely_the_longer_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of a whole cluster wait for a controller that is away; each finds it soon after it is back."""
    clock = [1000.0]
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(sync, "monotonic", lambda: clock[0])
    monkeypatch.setattr(sync, "sleep", pause)
    with pytest.raises(ClientError, match="Unable to contact slurm controller"):
        connect_controller(config(unused_port(), name=f"t{os.getpid()}r", timeout=30.0), wait_seconds=30.0)
    assert sum(pauses) == pytest.approx(30.0)
    assert pauses[:10] == [0.05] * 10
    assert max(pauses) == 1.0
    assert len(pauses) < 80


def test_a_controller_that_restarts_is_waited_for_if_asked() -> None:
    port = unused_port()
    name = config(port, name="restarting").socket_name
    found: list[str] = []

    def ask() -> None:
        with connect_controller(config(port, name="restarting"), wait_seconds=100) as connection:
            found.append(connection.call(Ask(text="back"), Answer).text)

    thread = threading.Thread(target=ask)
    thread.start()
    with serving({Ask: echo}, name):
        thread.join(100)
    assert found == ["back"]


def test_the_unix_socket_is_preferred() -> None:
    port = unused_port()
    with serving({Who: who}, config(port, name="preferred").socket_name):
        with connect_controller(config(port, name="preferred")) as connection:
            assert connection.call(Who(), Person).via == "unix"


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs another user to squat")
@pytest.mark.parametrize("over", ["unix", "tcp"])
def test_a_stranger_on_the_controllers_socket_or_port_is_not_trusted(over: str) -> None:
    port = unused_port()
    name = config(port, name="squatted").socket_name
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        squatter = unix_socket(name) if over == "unix" else socket.create_server(("127.0.0.1", port))
        os.write(told, b"x")
        squatter.setblocking(True)
        held = squatter.accept()
        time.sleep(1000)
        held[0].close()
        os._exit(0)
    try:
        os.read(ready, 1)
        with pytest.raises(ClientError, match="Protocol authentication error") as refused:
            connect_controller(config(port, name="squatted"))
        assert "uid 65534" in refused.value.hint
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(told)


def test_nothing_is_sent_to_a_local_port_that_does_not_accept() -> None:
    """Before it is accepted, the owner of the other end is unknown, so nothing is sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(ClientError, match="connect failure") as failed:
            connect_controller(config(listener.getsockname()[1], timeout=0.3))
        assert "the connection is not accepted" in failed.value.hint


def test_a_connection_that_was_closed_for_idleness_is_found_out_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the request can be sent again: it was not heard."""
    monkeypatch.setattr(sync, "_STALE_SECONDS", 0.0)
    with serving({Ask: echo}, limits=Limits(idle_seconds=0.5)) as server:
        address = ("127.0.0.1", server.port)
        monkeypatch.setattr(sync, "connect_controller", lambda wait_seconds=None: connect_address(address, timeout=100))
        session = Session(Context("scontrol", {}, "/", sys.stdin, sys.stdout, sys.stderr, os.getpid()), lambda: "")
        with connect_address(address, timeout=100) as connection:
            assert connection.call(Ask(text="one"), Answer).text == "one"
            assert session.call(Ask(text="one"), Answer).text == "one"
            first = session.controller()
            wait_for(lambda: not connection.is_quiet() and not first.is_quiet())
            with pytest.raises(ConnectionLost) as lost:
                connection.call(Ask(text="two"), Answer)
            assert lost.value.code == "SLURMCTLD_COMMUNICATIONS_SEND_ERROR"
            assert session.call(Ask(text="two"), Answer).text == "two"
            assert session.controller() is not first
        session.close()


def test_a_kept_connection_is_used_again_only_as_long_as_the_daemon_surely_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper = sync.ConnectionCache()
    with serving({Ask: echo}) as server:
        kept = connect_address(("127.0.0.1", server.port), timeout=100)
        kept.address = ("here",)
        assert keeper.keep(kept)
        assert keeper.take(("here",)) is kept
        assert keeper.keep(kept)
        monkeypatch.setattr(sync, "_STALE_SECONDS", 0.0)
        assert keeper.take(("here",)) is None
        with pytest.raises(ClientError):
            kept.call(Ask(), Answer)


def test_a_connection_whose_token_was_refused_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = sync.ConnectionCache()
    monkeypatch.setattr(sync, "connection_cache", keeper)
    monkeypatch.setenv("SLURM_JWT", "forged")
    with serving({UseToken: refuse}) as server:
        for _ in range(2):
            with pytest.raises(RemoteError, match="Protocol authentication error"):
                connect_controller(config(server.port))
            assert keeper.descriptor() == -1


def refuse(request: UseToken, call: Call) -> Rejection:
    return Rejection(code="SLURM_PROTOCOL_AUTHENTICATION_ERROR")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_importing_the_client_brings_in_nothing_slow() -> None:
    """STYLE §3: commands must start fast. The list is of what costs more than a millisecond each."""
    program = (
        "import sys, msgspec; before = set(sys.modules);"
        "import spritz.client.command.sync, spritz.client.locate, spritz.runtime.clock;"
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    slow = {"asyncio", "socket", "logging", "json", "re", "enum", "dataclasses", "typing", "argparse", "datetime"}
    assert not slow & set(loaded)


def test_a_connection_is_closed_when_its_block_is_left() -> None:
    with serving({Ask: echo}) as server:
        connection: Connection
        with connect_address(("127.0.0.1", server.port), timeout=100) as connection:
            connection.call(Ask(), Answer)
        with pytest.raises(ClientError):
            connection.call(Ask(), Answer)
