"""What a command on another machine hears from its daemon."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from functools import partial
from types import SimpleNamespace

from spritz.client.errors import ClientError, certificate_problem, unreachable
from spritz.client.mux import MuxStream
from spritz.client.relay import DATABASE_UNREACHABLE, _Caller, _Link
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
    refused.verify_message = "certificate is not yet valid"
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
