"""What a supervisor passes on of the nodes below it, over real sockets."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator

import pytest

from spritz.stepd import protocol
from spritz.stepd.clients.below import Below
from spritz.stepd.reactor import Reactor
from spritz.stepd.spec import Identity, SupervisorSpec, TaskSpec


class Parent:
    """A supervisor's part that listens for two nodes; `up` is what it has passed on to the client."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.up: list[tuple[int, int, bytes]] = []
        self.finished = 0
        self._decoder = protocol.Decoder()
        self.address = f"\0spritz-test-{os.getpid()}-{os.urandom(8).hex()}"
        spec = SupervisorSpec(
            job_id=7,
            restart_count=0,
            step_id=0,
            label="7.0",
            node="n1",
            node_index=0,
            identity=Identity(uid=os.getuid(), gid=os.getgid()),
            tasks=(TaskSpec(task_id=0),),
            io_key="key",
            io_listen=f"unix:@{self.address[1:]}",
            io_children=2,
        )
        self.below = Below(self.reactor, spec, self._passed, self._over)
        self.below.way(True)

    def _passed(self, frames: bytes) -> None:
        self.up += self._decoder.feed(frames)

    def _over(self) -> None:
        self.finished += 1

    def turn(self) -> None:
        """Do what there is to do now."""
        self.reactor.after(0.0, self.reactor.stop)
        self.reactor.run()

    def connect(self, place: int, key: str = "key", below: int = 0) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address)
        hello = protocol.Hello(1, key, f"n{place}", place, 7, 0, (place,), attempt=0, below=below)
        connection.sendall(protocol.encode_hello(hello))
        for _ in range(3):
            self.turn()
        return connection


@pytest.fixture
def parent() -> Iterator[Parent]:
    made = Parent()
    yield made
    made.below.close()
    made.reactor.close()


def heard(connection: socket.socket) -> list[tuple[int, int, bytes]]:
    assert select.select([connection], [], [], 10)[0], "it is told something"
    return protocol.Decoder().feed(connection.recv(65536))


def test_connections_without_the_steps_key_are_not_relayed(parent: Parent) -> None:
    with parent.connect(1, key="another") as stranger:
        assert stranger.recv(10) == b"", "the connection is closed"
    assert parent.up == []


def test_frames_go_up_and_down_with_the_place_of_their_node(parent: Parent) -> None:
    with parent.connect(1) as one, parent.connect(2, below=1) as two:
        parent.up.clear()
        output = protocol.frame(protocol.STDOUT, 1, b"hello\n")
        one.sendall(output)
        two.sendall(protocol.via(3, output))
        for _ in range(3):
            parent.turn()
        assert sorted(parent.up) == [(protocol.VIA, 1, output), (protocol.VIA, 3, output)]
        word = protocol.frame(protocol.SIGNAL, protocol.ALL_TASKS, protocol.pack_number(2))
        parent.below.from_above(3, word)
        assert heard(two) == [(protocol.VIA, 3, word)]
        parent.below.from_above(protocol.ALL_NODES, word)
        assert heard(one) == [(protocol.SIGNAL, protocol.ALL_TASKS, protocol.pack_number(2))]
        assert [kind for kind, _, _ in heard(two)] == [protocol.SIGNAL, protocol.VIA]


def test_a_connection_that_ends_early_is_told_with_all_behind_it(parent: Parent) -> None:
    with parent.connect(1) as one, parent.connect(2, below=1) as two:
        two.sendall(protocol.via(3, protocol.frame(protocol.STDOUT, 3, b"x\n")))
        one.sendall(protocol.frame(protocol.DONE))
        parent.turn()
        parent.up.clear()
    for _ in range(3):
        parent.turn()
    assert sorted(parent.up) == [(protocol.LOST, 2, b""), (protocol.LOST, 3, b"")]
    assert not parent.below.finished, "a node that was lost may come again"
    with parent.connect(2) as again:
        again.sendall(protocol.frame(protocol.DONE))
        parent.turn()
    for _ in range(3):
        parent.turn()
    assert (parent.below.finished, parent.finished) == (True, 1)
