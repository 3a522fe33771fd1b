"""A server that ends at each moment of a call: the command is done once, or fails with a message; never twice, never
not at all without a word.

Something that speaks the server's language stands in its place, and goes away after each step in turn. Source:
docs/decisions/0168; `launcher/serve.c` and `spritz.commandserver.request` have the language.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import threading
from time import monotonic

import pytest

from spritz.commandserver import reply
from spritz.commandserver.request import BadRequest, Request, receive, take_out
from tests.e2e.launched import PATIENCE_SECONDS, Launched

VERSION = b"slurm 25.05.0\n"
ENDED = b"squeue: error: the command server ended in the middle of this call\n"


class Impostor:
    """One connection, led through the steps of a call up to a last one."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._request: Request | None = None
        self._box: socket.socket | None = None
        self._held: list[int] = []

    def accepted(self) -> None:
        """The connection is there; nothing has been read."""

    def read_a_part(self) -> None:
        """A few bytes of the request have been read."""
        self._connection.recv(10)

    def said_ended_too_early(self) -> None:
        """That a command has ended which cannot have begun."""
        self.said_ended()

    def read_all(self) -> None:
        """The request, with its box."""
        self._request, directory, self._box = receive(self._connection)
        self._held = [directory]

    def became_its_owner(self) -> None:
        """So that signals would go to this process."""
        assert self._box is not None
        fcntl.fcntl(self._box, fcntl.F_SETOWN, os.getpid())

    def emptied_the_box(self) -> None:
        """From here on the command may have begun."""
        assert self._request is not None
        assert self._box is not None
        self._held += [one for one in take_out(self._box, self._request) if one >= 0]

    def said_ended_in_part(self) -> None:
        """The end is told, and cut off."""
        self._connection.send(reply.encode(reply.ENDED, 0)[:5])

    def said_ended(self) -> None:
        """The end is told."""
        self._connection.send(reply.encode(reply.ENDED, 0))

    def close(self) -> None:
        """As a process that is killed."""
        for descriptor in self._held:
            os.close(descriptor)
        if self._box is not None:
            self._box.close()
        self._connection.close()


BEFORE = ("accepted", "read_a_part"), ("said_ended_too_early",), ("read_all", "became_its_owner")
AFTER = ("read_all", "emptied_the_box", "said_ended_in_part")
STORIES = [*((story[: end + 1], True) for story in BEFORE for end in range(len(story)))] + [
    (AFTER[: end + 1], False) for end in range(1, len(AFTER))
]


@pytest.mark.parametrize(("story", "again"), STORIES, ids=lambda value: value[-1] if isinstance(value, tuple) else "")
def test_a_server_that_goes_away(launched: Launched, story: tuple[str, ...], again: bool) -> None:
    with in_the_servers_place(launched) as listener:
        process, impostor = called(launched, listener)
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


@pytest.mark.parametrize("story", [("accepted",), ("read_all",)], ids=lambda story: story[-1])
def test_a_server_that_stops_answering(impatient: Launched, story: tuple[str, ...]) -> None:
    """The launcher waits for some seconds and takes the call back; no child can take it then."""
    with in_the_servers_place(impatient) as listener:
        process, impostor = called(impatient, listener)
        for step in story:
            getattr(impostor, step)()
        # To the end of the pipe, which the impostor must not hold open.
        assert process.communicate(timeout=PATIENCE_SECONDS)[0] == VERSION
        assert process.returncode == 0
        if story == ("read_all",):
            with pytest.raises(BadRequest):
                impostor.emptied_the_box()
        impostor.close()
    assert impatient.direct_calls() == ["squeue"]


def test_a_caller_can_interrupt_a_server_that_took_the_call_and_says_nothing(launched: Launched) -> None:
    """Whether the command has begun is not known: it is not run again, and the caller is not kept for ever."""
    with in_the_servers_place(launched) as listener:
        process, impostor = called(launched, listener)
        for step in AFTER[:2]:
            getattr(impostor, step)()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGINT
        impostor.close()
        process.communicate()
    assert launched.direct_calls() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_command_has_begun_ends_the_launcher(launched: Launched, number: int) -> None:
    """A child that is slow to take the call does not get it any more."""
    with in_the_servers_place(launched) as listener:
        process, impostor = called(launched, listener)
        impostor.read_all()
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE_SECONDS)[0] == b""
        assert process.returncode == -number
        with pytest.raises(BadRequest):
            impostor.emptied_the_box()
        impostor.close()
    assert launched.direct_calls() == []


def test_a_signal_after_the_command_is_done_does_not_replace_its_status(launched: Launched) -> None:
    """A job that requeues itself gets SIGTERM while scontrol ends, and asks how that ended."""
    with in_the_servers_place(launched) as listener:
        while True:
            process, impostor = called(launched, listener)
            for step in AFTER[:2]:  # no process owns the box, as after a command
                getattr(impostor, step)()
            sent_at = monotonic()
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)  # time to die of it
            with contextlib.suppress(BrokenPipeError):
                impostor.said_ended()
            seconds = monotonic() - sent_at
            impostor.close()
            process.communicate(timeout=PATIENCE_SECONDS)
            if seconds < 0.5:
                break
            # This machine is too busy: the launcher waits for a second.
    assert process.returncode == 0
    assert launched.direct_calls() == []


def called(launched: Launched, listener: socket.socket) -> tuple[subprocess.Popen[bytes], Impostor]:
    """A launcher that calls, and who answers in the server's place."""
    process = subprocess.Popen(
        ["squeue", "--version"],
        executable=launched.directory / "squeue",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=launched.environment(),
    )
    return process, Impostor(listener.accept()[0])


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
    for _ in range(4):
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
