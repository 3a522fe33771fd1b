"""What a command on another machine hears from its daemon."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from functools import partial
from types import SimpleNamespace
from typing import Any

from spritz.client.errors import ClientError, certificate_problem, unreachable
from spritz.client.relay.mux import MuxStream
from spritz.client.relay.relay import DATABASE_UNREACHABLE, Relay, _Caller, _Link
from spritz.runtime.log import get_logger
from spritz.runtime.randomness import SystemRandomness
from spritz.runtime.sockets import AddressInUse, unix_socket
from spritz.runtime.tasks import Supervisor, run
from spritz.wire.envelope import failure

from .test_mux import pair, turns


def test_a_command_is_told_why_its_user_is_refused() -> None:
    async def run() -> bytes:
        opened: list[MuxStream] = []
        to_daemon, _daemon, _wire = pair(opened)
        relay, link = (
            SimpleNamespace(sealed=lambda uid, gid: b"credential", refusal=lambda: None),
            SimpleNamespace(_mux=to_daemon, sealing=None),
        )
        command, accepted = socket.socketpair()
        with command:
            await asyncio.get_running_loop().create_unix_connection(lambda: _Caller(relay, link), sock=accepted)  # type: ignore[arg-type]  # stand-ins
            await turns()
            opened[0].refuse("Protocol authentication error: expired credential: 900 s ago")
            await turns()
            command.setblocking(False)
            return os.read(command.fileno(), 1000)

    assert b"expired credential: 900 s ago" in asyncio.run(run())


def test_a_command_is_told_that_its_machine_was_put_out() -> None:
    async def run() -> bytes:
        said = failure("ESLURM_ACCESS_DENIED", "Access/permission denied: machine n1 was revoked")
        command, accepted = socket.socketpair()
        with command:
            make = partial(_Caller, SimpleNamespace(refusal=lambda: said), SimpleNamespace(_mux=None))  # type: ignore[arg-type]  # stand-ins
            await asyncio.get_running_loop().create_unix_connection(make, sock=accepted)
            await turns()
            command.setblocking(False)
            return os.read(command.fileno(), 1000)

    assert b"machine n1 was revoked" in asyncio.run(run())


def test_a_command_is_told_of_a_clock_that_no_certificate_fits() -> None:
    link = _Link(
        SimpleNamespace(),  # type: ignore[arg-type]  # a stand-in
        lambda: [("head", 6819)],
        secure=None,  # type: ignore[arg-type]  # not used
        sealing=None,
        patience_seconds=8.0,
        silent_seconds=0.0,
        unreachable=failure("SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR", "Unable to contact slurm controller"),
    )
    refused = ssl.SSLCertVerificationError(1, "certificate verify failed")
    refused.verify_message, refused.verify_code = "certificate is not yet valid", 9
    link._problem = unreachable(f"head:6819: {certificate_problem(refused)}")
    told = link.unreachable()
    assert told.code == "SLURM_PROTOCOL_AUTHENTICATION_ERROR"
    assert told.message == (
        "Protocol authentication error: head:6819: certificate is not yet valid; is the clock of this machine right?"
    )


def test_a_command_is_told_which_address_did_not_answer() -> None:
    relay = SimpleNamespace()
    link = _Link(
        relay,  # type: ignore[arg-type]  # a stand-in
        lambda: [("head", 6819), ("spare", 6819)],
        secure=None,  # type: ignore[arg-type]  # not used
        sealing=None,
        patience_seconds=8.0,
        silent_seconds=0.0,
        unreachable=DATABASE_UNREACHABLE,
    )
    assert link.unreachable().hint == "no answer from head:6819; no answer from spare:6819"
    link._problem = ClientError("Unable to contact slurm controller", hint="head:6819: Connection refused")
    assert link.unreachable().hint == "head:6819: Connection refused"


class Turning:
    """A clock whose sleeps end when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def sleep(self, seconds: float) -> None:
        self.waiting.append(asyncio.get_running_loop().create_future())
        await self.waiting[-1]

    async def turn(self) -> None:
        """Every sleep ends; returns when the next have begun."""
        done, self.waiting = self.waiting, []
        for sleep in done:
            sleep.set_result(None)
        while not self.waiting:  # noqa: ASYNC110 - turns of the loop
            await asyncio.sleep(0)


def _is_taken(name: str) -> bool:
    try:
        unix_socket(name).close()
    except AddressInUse:
        return True
    return False


def test_names_are_held_while_the_daemon_that_they_are_for_does_not_run() -> None:
    """slurmd and sackd on a controller's machine: while slurmctld runs, its socket's names are its own."""
    names = [f"\0spritz-test-{os.getpid()}-{word}" for word in ("slurmctld", "streams")]

    async def main() -> None:
        clock, runs = Turning(), [False]

        async def slurmctld_runs() -> bool:
            return runs[0]

        async with Supervisor() as tasks:
            relay = Relay(
                SimpleNamespace(host="ctl1"),  # type: ignore[arg-type]  # a stand-in, not asked
                "test",
                tasks=tasks,
                clock=clock,  # type: ignore[arg-type]  # it only sleeps
                randomness=SystemRandomness(),
                log=get_logger("test"),
            )
            secure: Any = None
            relay.serve(names[0], tuple, secure, streams=names[1], yields_to=slurmctld_runs)
            await clock.turn()
            assert all(map(_is_taken, names))
            runs[0] = True
            await clock.turn()
            assert not any(map(_is_taken, names)), "slurmctld can take them"
            with unix_socket(names[0]):
                runs[0] = False
                await clock.turn()
                assert _is_taken(names[1]), "one that is free"
            await clock.turn()
            assert all(map(_is_taken, names)), "it has ended"
            relay.close()
            assert not any(map(_is_taken, names))
            await clock.turn()
            assert not any(map(_is_taken, names)), "and they are not taken again"
            tasks.cancel_all()

    run(main())


def test_names_of_a_daemon_elsewhere_are_taken_when_they_are_free_and_kept_without_a_look() -> None:
    name = f"\0spritz-test-{os.getpid()}-elsewhere"

    async def main() -> None:
        clock = Turning()
        async with Supervisor() as tasks:
            relay = Relay(
                SimpleNamespace(host="n1"),  # type: ignore[arg-type]  # a stand-in, not asked
                "test",
                tasks=tasks,
                clock=clock,  # type: ignore[arg-type]  # it only sleeps
                randomness=SystemRandomness(),
                log=get_logger("test"),
            )
            secure: Any = None
            with unix_socket(name):
                relay.serve(name, tuple, secure)
                await clock.turn()
            (sleep,) = clock.waiting
            clock.waiting.clear()
            sleep.set_result(None)
            while not _is_taken(name):  # noqa: ASYNC110 - turns of the loop
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            assert not clock.waiting, "no timer wakes a node's daemon"
            relay.close()
            assert not _is_taken(name)
            tasks.cancel_all()

    run(main())
