"""Who does a call: the server's child that empties its box, or the launcher that does."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from collections.abc import Iterator

import pytest

from spritz.commandserver.child import _die_with, _is_held, _outlive
from spritz.commandserver.request import Request, take_out
from tests.unit.commandserver.test_request import message

Box = tuple[socket.socket, socket.socket]


@pytest.fixture
def box() -> Iterator[Box]:
    """The launcher's end, and the one that both have; three streams are in it."""
    put_in, out = socket.socketpair()
    socket.send_fds(put_in, [b"D"], [0, 1, 2])
    with put_in, out:
        yield put_in, out


def test_a_call_that_the_launcher_took_back_goes_to_no_child(box: Box) -> None:
    assert box[1].recv(1, socket.MSG_DONTWAIT) == b"D"
    with pytest.raises(BlockingIOError):
        take_out(box[1], Request(message(b"squeue")))


def test_a_call_that_was_taken_cannot_be_taken_back(box: Box) -> None:
    for number in take_out(box[1], Request(message(b"squeue"))):
        os.close(number)
    with pytest.raises(BlockingIOError):
        box[1].recv(1, socket.MSG_DONTWAIT)


def test_a_launcher_that_has_gone_is_noticed(box: Box) -> None:
    assert _is_held(box[1])
    box[0].close()
    assert not _is_held(box[1])


def test_a_child_dies_with_its_launcher_and_not_of_what_that_has_sent(box: Box) -> None:
    put_in, out = box
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            put_in.close()
            _die_with(out, os.getpid())
            take_out(out, Request(message(b"squeue")))
            os.write(writing, b"!")
            signal.pause()
        finally:
            os._exit(0)
    os.close(writing)
    assert os.read(reading, 1) == b"!"
    os.close(reading)
    assert fcntl.fcntl(out, fcntl.F_GETOWN) == pid, "it is found by the launcher"
    put_in.close()
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def test_a_call_that_is_over_outlives_its_launcher(box: Box) -> None:
    put_in, out = box
    _die_with(out, os.getpid())
    _outlive(out)
    put_in.close()
