"""Who does a call: the server's child that takes its token, or the launcher that takes it back."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from spritz.cli.server.child import _take


@pytest.fixture
def call() -> Iterator[tuple[int, socket.socket, socket.socket]]:
    """A token that has not been offered, the child's end of a connection and the launcher's."""
    token = os.eventfd(0, os.EFD_NONBLOCK)
    ours, theirs = socket.socketpair()
    yield token, ours, theirs
    os.close(token)
    ours.close()
    theirs.close()


def test_a_child_waits_until_the_launcher_has_sent_everything(call: tuple[int, socket.socket, socket.socket]) -> None:
    token, ours, _ = call
    offered: list[bool] = []

    def offer() -> None:
        offered.append(True)
        os.eventfd_write(token, 1)

    later = threading.Timer(0.05, offer)
    later.start()
    _take(token, ours)
    assert offered
    with pytest.raises(BlockingIOError):
        os.eventfd_read(token)  # nobody else can have it
    later.join()


def test_the_call_of_a_launcher_that_has_gone_is_not_taken(call: tuple[int, socket.socket, socket.socket]) -> None:
    token, ours, theirs = call
    theirs.close()
    with pytest.raises(BlockingIOError):
        _take(token, ours)
