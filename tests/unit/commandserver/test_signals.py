"""Signals that reach a command while its call ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.commandserver import process_state


def request(ignored: int = 0, blocked: int = 0) -> Any:
    return SimpleNamespace(ignored=ignored, blocked=blocked)


@pytest.fixture
def held() -> Iterator[None]:
    """As between a command's last line and its reply."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # drops what waits
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGTERM, handler)


_SIGTERM = 1 << (signal.SIGTERM - 1)


@pytest.mark.usefixtures("held")
def test_a_late_signal_ends_no_command_whose_caller_ignores_or_blocks_it() -> None:
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # no other thread may take it
    assert process_state.late_signal(request()) == signal.SIGTERM
    assert process_state.late_signal(request(ignored=_SIGTERM)) == 0
    assert process_state.late_signal(request(blocked=_SIGTERM)) == 0


@pytest.mark.usefixtures("held")
def test_a_command_that_came_to_ignore_sigterm_is_known() -> None:
    """Its child must not ignore the signal in the next call."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert not process_state.ignores_more(request())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert process_state.ignores_more(request())
    assert not process_state.ignores_more(request(ignored=_SIGTERM))
