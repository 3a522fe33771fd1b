"""A supervisor between two steps."""

from __future__ import annotations

import socket

from spritz.stepd import control, zygote


def test_orders_that_come_with_the_next_step_are_left_for_it() -> None:
    """The daemon does not wait for an answer before it sends the order to end the step that it has just given."""
    daemon, supervisor = socket.socketpair()
    late: list[control.Order] = [control.Terminate("too late", 1.0), control.Forget()]
    messages: list[control.Order] = [control.Forget(), control.Begin("/spool/7.0"), *late]
    with daemon, supervisor:
        daemon.sendall(b"".join(control.encode(message) for message in messages))
        assert zygote._next_directory(supervisor) == "/spool/7.0"
        assert control.OrderDecoder().feed(supervisor.recv(65536)) == late
        assert control.ReportDecoder().feed(daemon.recv(65536)) == [control.Idle()]


def test_a_daemon_that_goes_away_in_mid_word_has_no_next_step() -> None:
    daemon, supervisor = socket.socketpair()
    with supervisor:
        with daemon:
            daemon.sendall(control.encode(control.Begin("/spool/7.0"))[:-3])
        assert zygote._next_directory(supervisor) == ""
