"""A server that ends at each moment of a call: the command is done once, or fails with a message; never twice, never
not at all without a word.

Something that speaks the server's language stands in its place, and goes away after each step in turn. Source:
docs/decisions/0040; `launcher/serve.c` and `spritz.cli.server.request` have the language.
"""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import threading

import pytest

from spritz.cli.server import reply
from spritz.cli.server.request import Request, receive, receive_descriptors
from tests.e2e.launched import PATIENCE_SECONDS, Launched

VERSION = b"slurm 25.05.0\n"
ENDED = b"squeue: error: the command server ended in the middle of this call\n"


class Impostor:
    """One connection, led through the steps of a call up to a last one."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._request: Request | None = None
        self._token = -1
        self._held: list[int] = []

    def accepted(self) -> None:
        """The connection is there; nothing has been read."""

    def read_a_part(self) -> None:
        """A few bytes of the request have been read."""
        self._connection.recv(10)

    def said_there(self) -> None:
        """That somebody has the call."""
        self._connection.send(reply.encode(reply.THERE, 0))

    def said_there_in_part(self) -> None:
        """The first bytes of that."""
        self._connection.send(reply.encode(reply.THERE, 0)[:3])

    def read_all(self) -> None:
        """The request, as it is."""
        self._request = receive(self._connection)

    def got_descriptors(self) -> None:
        """The caller's streams, directory and token are here."""
        assert self._request is not None
        found = receive_descriptors(self._connection, self._request)
        self._token = found.token
        self._held = [found.directory, found.token, *(one for one in found.streams if one >= 0)]

    def took_the_token(self) -> None:
        """From here on the command may have begun."""
        select.select([self._token], [], [], 1)  # it is offered when everything has been sent
        assert int.from_bytes(os.read(self._token, 8), "little") == 1

    def said_started(self) -> None:
        """With a process that is there for its signals to go to."""
        self._connection.send(reply.encode(reply.STARTED, os.getpid()))

    def said_ended_in_part(self) -> None:
        """The end is told, and cut off."""
        self._connection.send(reply.encode(reply.ENDED, 0)[:5])

    def close(self) -> None:
        """As a process that is killed."""
        for descriptor in self._held:
            os.close(descriptor)
        self._connection.close()


BEFORE = ("accepted", "read_a_part"), ("said_there_in_part",), ("said_there", "read_all", "got_descriptors")
AFTER = ("said_there", "read_all", "got_descriptors", "took_the_token", "said_started", "said_ended_in_part")
STORIES = [*((story[: end + 1], True) for story in BEFORE for end in range(len(story)))] + [
    (AFTER[: end + 1], False) for end in range(3, len(AFTER))
]


@pytest.mark.parametrize(("story", "again"), STORIES, ids=lambda value: value[-1] if isinstance(value, tuple) else "")
def test_a_server_that_goes_away(launched: Launched, story: tuple[str, ...], again: bool) -> None:
    with in_the_servers_place(launched) as listener:
        process = subprocess.Popen(
            ["squeue", "--version"],
            executable=launched.directory / "squeue",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=launched.environment(),
        )
        impostor = Impostor(listener.accept()[0])
        for step in story:
            getattr(impostor, step)()
        impostor.close()
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    if again:
        assert (process.returncode, out, err) == (0, VERSION, b"")
        assert launched.direct_calls() == ["squeue"]
    else:
        assert (process.returncode, out, err) == (1, b"", ENDED)
        assert launched.direct_calls() == []


@pytest.mark.parametrize("last", [1, 2, 3, 4])
def test_a_server_that_stops_answering(launched: Launched, last: int) -> None:
    """Up to the token the launcher waits for some seconds and takes the call back; nobody can take the token then."""
    story = ("accepted", "said_there", "read_all", "got_descriptors")[:last]
    with in_the_servers_place(launched) as listener:
        process = subprocess.Popen(
            ["squeue", "--version"],
            executable=launched.directory / "squeue",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=launched.environment(),
        )
        impostor = Impostor(listener.accept()[0])
        for step in story:
            getattr(impostor, step)()
        assert process.stdout is not None
        # The impostor may hold the other end of the pipe: what counts is what comes, and that the launcher ends.
        assert process.stdout.readline() == VERSION
        assert process.wait(PATIENCE_SECONDS) == 0
        if last == 4:
            with pytest.raises(BlockingIOError):
                impostor.took_the_token()
        process.stdout.close()
        impostor.close()
    assert launched.direct_calls() == ["squeue"]


def test_a_caller_can_interrupt_a_server_that_took_the_token_and_says_nothing(launched: Launched) -> None:
    """Whether the command has begun is not known: it is not run again, and the caller is not kept for ever."""
    with in_the_servers_place(launched) as listener:
        process = subprocess.Popen(
            ["squeue", "--version"],
            executable=launched.directory / "squeue",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=launched.environment(),
        )
        impostor = Impostor(listener.accept()[0])
        for step in AFTER[:4]:
            getattr(impostor, step)()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGINT
        impostor.close()
        process.communicate()
    assert launched.direct_calls() == []


def in_the_servers_place(launched: Launched) -> socket.socket:
    launched.socket.parent.mkdir(mode=0o700, exist_ok=True)
    here = os.open(launched.socket.parent, os.O_PATH)
    listener = socket.socket(socket.AF_UNIX)
    listener.settimeout(PATIENCE_SECONDS)
    listener.bind(f"/proc/self/fd/{here}/{launched.socket.name}")
    os.close(here)
    listener.listen()
    return listener


def test_a_server_that_is_killed_at_any_moment(launched: Launched) -> None:
    """A real one, its children left alone: every call comes to its end, through a child or by itself."""
    chance = random.Random(100)
    for _ in range(10):
        server = launched.warm()
        process = subprocess.Popen(
            ["scontrol", "show", "hostnames", "n[1-400]"],
            executable=launched.directory / "scontrol",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=launched.environment(),
        )
        # Whatever moment this is on this machine: what must hold does not depend on it.
        threading.Event().wait(chance.random() * 0.004)
        os.kill(server, signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, err) == (0, b"")
        assert out.split() == [b"n%d" % number for number in range(1, 401)]
        # The next one need not wait until a server that just started may be replaced.
        launched.socket.with_name(f"{launched.socket.name}.lock").unlink(missing_ok=True)
