"""A user who takes the controller's places while it is away gains nothing, and cannot keep it from coming back."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator

import pytest

from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.client.locate import controller_socket_name, locate_controller
from spritz.model.commands.job import JobSubmitted
from spritz.model.queries.daemons import Ping, Pong
from tests.e2e.cluster import Cluster, until
from tests.e2e.people import Person, made_people

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("useradd") is None, reason="makes users: needs root and useradd"
)


@pytest.fixture(scope="module")
def mallory() -> Iterator[Person]:
    with made_people("mallory") as made:
        yield made["mallory"]


class Impostor:
    """A process of that user that listens at an address, accepts everybody, and keeps what it is told."""

    def __init__(self, person: Person, address: str | tuple[str, int]) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setgroups(person.groups)
                os.setgid(person.gid)
                os.setuid(person.uid)
                self._listen(address, writing)
            finally:
                os._exit(1)
        os.close(writing)
        self._heard = reading
        assert os.read(reading, 1) == b"!", "it listens"

    def _listen(self, address: str | tuple[str, int], writing: int) -> None:
        listening = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(100)
        os.write(writing, b"!")
        kept = []
        while True:
            connection, _ = listening.accept()
            connection.settimeout(0.2)
            kept.append(connection)
            try:
                os.write(writing, connection.recv(100_000))
            except OSError:
                continue

    def end(self) -> bytes:
        """What it heard."""
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        heard = b""
        while piece := os.read(self._heard, 65536):
            heard += piece
        os.close(self._heard)
        return heard


@pytest.mark.parametrize("place", ["socket", "port"])
def test_an_impostor_on_the_socket_is_not_trusted(
    make_cluster: Callable[..., Cluster], mallory: Person, place: str
) -> None:
    cluster = make_cluster(nodes=1).start()
    cluster.kill_controller()
    address = controller_socket_name(cluster.name, cluster.port) if place == "socket" else ("127.0.0.1", cluster.port)
    impostor = Impostor(mallory, address)
    config = locate_controller(str(cluster.conf))
    with pytest.raises(ClientError, match=r"Protocol authentication error|Unable to contact"):
        connect_controller(config).call(cluster.request("# secret\ntrue"), JobSubmitted)
    until(lambda: "connection.failed" in cluster.node_log(), "slurmd has tried")
    heard = impostor.end()
    assert heard == b"", "no command has sent anything to it"


def test_the_controller_comes_back_although_its_socket_is_taken(
    make_cluster: Callable[..., Cluster], mallory: Person
) -> None:
    cluster = make_cluster(nodes=1).start()
    running = cluster.submit("while ! test -e go; do sleep 0.02; done")
    cluster.wait_state(running, "RUNNING")
    cluster.kill_controller()
    impostor = Impostor(mallory, controller_socket_name(cluster.name, cluster.port))
    cluster.controller = None
    config = locate_controller(str(cluster.conf))
    daemon = cluster.run("slurmctld")
    assert daemon.returncode == 0, daemon.stderr
    with connect_controller(config) as connection:
        assert connection.call(Ping(), Pong).mode == "primary"
        connection.call(cluster.request("touch done"), JobSubmitted)
    (cluster.work / "go").touch()
    until((cluster.work / "done").exists, "slurmd has come back too, and runs jobs")
    assert f"uid={mallory.uid}" in cluster.controller_log()
    assert impostor.end() == b""
