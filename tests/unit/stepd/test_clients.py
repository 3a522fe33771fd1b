"""Connections of supervisors to clients, here by way of a daemon of the machine."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from spritz.stepd import protocol
from spritz.stepd.clients.connections import ClientUnreachable, connect, is_led
from spritz.stepd.clients.uplink import Attempt
from spritz.stepd.reactor import Reactor
from spritz.stepd.spec import Identity, SupervisorSpec

ALICE, SLURM = 65001, 65002

pytestmark = pytest.mark.root


@pytest.fixture
def address() -> Iterator[str]:
    """Of a client on another machine, to which a daemon leads that runs as SlurmUser, as slurmctld does."""
    name = f"spritz-test-{os.getpid()}"
    os.seteuid(SLURM)
    daemon = socket.socket(socket.AF_UNIX)
    daemon.bind(f"\0{name}")
    daemon.listen()
    os.seteuid(0)

    def lead() -> None:
        while True:
            try:
                connection, _ = daemon.accept()
            except OSError:
                return
            with connection:
                if connection.recv(1000):
                    connection.sendall(protocol.REACHED)

    thread = threading.Thread(target=lead)
    thread.start()
    yield f"at:elsewhere:@{name}:unix:@spritz-test-client"
    daemon.shutdown(socket.SHUT_RDWR)
    daemon.close()
    thread.join()


def test_slurm_user_leads_to_other_machines(address: str) -> None:
    assert is_led(address)
    with connect(address, ALICE, SLURM, 0.0) as connection:
        assert connection.fileno() >= 0


def test_another_user_does_not(address: str) -> None:
    with pytest.raises(ClientUnreachable, match="another user"):
        connect(address, ALICE, ALICE, 0.0)


@pytest.mark.parametrize(("relay_uid", "is_connected"), [(SLURM, True), (ALICE, False)])
def test_the_same_holds_when_connecting_again(address: str, relay_uid: int, is_connected: bool) -> None:
    spec = SupervisorSpec(
        job_id=1,
        restart_count=0,
        step_id=0,
        label="1.0",
        node="here",
        node_index=0,
        identity=Identity(ALICE, ALICE),
        tasks=(),
        relay_uid=relay_uid,
    )
    reactor = Reactor()
    answers: list[socket.socket | None] = []

    def tried(connection: socket.socket | None, _why: str) -> None:
        answers.append(connection)
        reactor.stop()

    there = protocol.elsewhere(address)
    assert there is not None
    host, streams, client = there
    Attempt(reactor, spec, client, protocol.Where(host, client), streams, tried)
    if not answers:
        reactor.run()
    assert [answer is not None for answer in answers] == [is_connected]
    for answer in answers:
        if answer is not None:
            answer.close()
