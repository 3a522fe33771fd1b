"""What strangers send is refused: frames, envelopes, credentials, launches, tokens, DNS answers.

Nothing but the error that its reader names comes out, and no more is kept than the reader's bound.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st
from tests.fuzz.guard import guard

from spritz.client.errors import ClientError
from spritz.client.joining.joining import _parts, parse_address
from spritz.client.relay.resumable_stream import ResumableStream
from spritz.client.trust.membership import Membership
from spritz.model.node_daemon.branches import split
from spritz.model.node_daemon.launch import ORDERS, Branch, ForwardOrder, SignedLaunch
from spritz.node.credentials import Launches
from spritz.node.forwarding import order_in
from spritz.runtime import srv
from spritz.runtime.authority import Signer
from spritz.wire.credential import (
    BadCredential,
    Taken,
    UserCredential,
    derive,
    launch_of,
    machine_key,
    seal,
    unseal,
)
from spritz.wire.envelope import decode_envelope
from spritz.wire.frames import HELLO_BYTES_MAX, PREFIX_BYTES, FrameDecoder, FrameError, frame

KEY = b"k" * 64
NOW = 1_800_000_000.0
MACHINE = machine_key(KEY, "n1")

#: Bytes of any kind, and bytes that begin as messages do.
BYTES = st.binary(max_size=300)
LIKE_FRAMES = st.lists(st.one_of(BYTES, BYTES.filter(len).map(frame)), max_size=6).map(b"".join)


class FixedClock:
    def now(self) -> float:
        return NOW


CLOCK: Any = FixedClock()
MEMBERSHIP = Membership("/x/slurm.key", cluster_keys=(KEY,))
SIGNER = Signer(derive(KEY, "launch"))


def credential(**changes: Any) -> UserCredential:
    given = {"cluster": "c", "host": "n1", "uid": 1, "gid": 1, "issued_at": NOW, "expires_at": NOW + 60}
    return UserCredential(**{**given, "nonce": b"n" * 16, **changes})


@given(LIKE_FRAMES, st.lists(st.integers(1, 400), max_size=8))
def test_frames(data: bytes, cuts: list[int]) -> None:
    decoder = FrameDecoder(first_bytes_max=HELLO_BYTES_MAX, frame_bytes_max=HELLO_BYTES_MAX)
    try:
        for size in (*cuts, len(data)):
            piece, data = data[:size], data[size:]
            for payload in decoder.feed(piece):
                try:
                    decode_envelope(payload)
                except FrameError:
                    continue
            assert decoder.buffered_bytes <= HELLO_BYTES_MAX + PREFIX_BYTES
    except FrameError:
        return


@given(BYTES)
def test_envelopes_of_any_bytes(data: bytes) -> None:
    try:
        decode_envelope(data)
    except FrameError:
        return


@given(BYTES, st.integers(0, 200), st.integers(1, 255))
def test_credentials(data: bytes, place: int, value: int) -> None:
    """Any bytes, and a good one with a byte of it changed: never taken, and never another error."""
    sealed = bytearray(seal(credential(), MACHINE))
    sealed[place % len(sealed)] ^= value
    for one in (data, bytes(sealed), bytes(sealed) + data, bytes(sealed)[: place % len(sealed)]):
        try:
            unseal(one, (MACHINE,))
        except BadCredential:
            continue
        raise AssertionError(f"taken: {one!r}")


@given(st.recursive(st.none() | st.integers() | st.floats() | st.binary(max_size=20) | st.text(max_size=20), st.lists))
def test_credentials_of_a_machine_that_lies(content: object) -> None:
    """Its seal is right, and what is sealed is not a credential, or is one of nonsense."""
    try:
        body = bytes((1,)) + msgspec.msgpack.encode(content)
    except (OverflowError, UnicodeEncodeError):
        return

    try:
        unseal(body + hmac.digest(MACHINE, body, hashlib.sha256), (MACHINE,))
    except BadCredential:
        pass
    try:
        launch_of(body)
    except BadCredential:
        pass


@given(st.floats(), st.floats(), st.binary(max_size=40), st.text(max_size=40))
def test_times_and_nonces_of_any_kind(issued: float, expires: float, nonce: bytes, cluster: str) -> None:
    taken = Taken(10)
    for number in range(12):
        one = credential(issued_at=issued, expires_at=expires, nonce=nonce or bytes((number,)) * 16, cluster=cluster)
        try:
            taken.check(one, cluster="c", now=NOW)
        except BadCredential:
            pass
        assert len(taken) <= 10


@given(BYTES, BYTES, BYTES, st.sampled_from(["LaunchStep", "LaunchBatch", "LaunchProlog", "Ping", ""]), st.booleans())
def test_launches(message: bytes, content: bytes, signature: bytes, kind: str, right: bool) -> None:
    """Of any bytes; `right`: signed by the controller, which would have to be broken."""
    if right:
        content = bytes((1,)) + content
        signature = SIGNER.sign(content)
    try:
        Launches(MEMBERSHIP, "c", CLOCK).open(
            SignedLaunch(kind=kind, message=message, credential=content, signature=signature)
        )
    except BadCredential:
        return
    raise AssertionError("taken")


@given(BYTES, BYTES, BYTES, st.sampled_from([*(kind.__name__ for kind in ORDERS), "LaunchBatch", ""]), st.booleans())
def test_orders(message: bytes, content: bytes, signature: bytes, kind: str, right: bool) -> None:
    """As launches, by way of another node."""
    if right:
        content = bytes((1,)) + content
        signature = SIGNER.sign(content)
    request = ForwardOrder(kind=kind, message=message, nodes=("n1",), credential=content, signature=signature)
    try:
        Launches(MEMBERSHIP, "c", CLOCK).check_order(request, order_in(request))
    except BadCredential:
        return
    raise AssertionError("taken")


@given(st.lists(st.integers(-5, 9), max_size=30))
def test_branches_of_any_depths_are_taken_apart(depths: list[int]) -> None:
    whole = tuple(Branch(address="a", port=1, nodes=(str(at),), depth=depth) for at, depth in enumerate(depths))
    left, found = [whole], []
    while left:
        for head, below in split(left.pop()):
            found.append(head.nodes)
            left.append(below)
    assert sorted(found) == sorted(branch.nodes for branch in whole)


@given(st.text(max_size=120))
@example("host:\u00b9")  # a digit, but no number
@example("host:" + "9" * 5000)
def test_tokens_and_addresses(text: str) -> None:
    for read in (_parts, parse_address):
        for one in (text, f"spz{text}"):
            try:
                read(one)
            except ClientError:
                continue


@given(BYTES, st.integers(0, 65535), st.integers(0, 4), st.integers(0, 65535))
def test_answers_of_name_servers(data: bytes, identity: int, questions: int, answers: int) -> None:
    header = struct.pack("!HHHHHH", identity, 0x8180, questions, answers, 0, 0)
    with guard():
        for one in (data, header + data):
            try:
                srv._read(one, identity)
            except (ValueError, struct.error, IndexError):
                continue


class AlreadyReported:
    """A stream that takes everything, and a connection likewise."""

    def __init__(self) -> None:
        self.taken = 0
        self.open = True

    def write(self, data: bytes) -> None:
        self.taken += len(data)

    def close(self) -> None:
        self.open = False

    abort = close

    def set_protocol(self, protocol: object) -> None:
        self.protocol: Any = protocol

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


@given(st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=40)), max_size=8), BYTES, st.integers(0, 64))
def test_streams_of_a_machine_that_lies(frames: list[tuple[int, bytes]], data: bytes, sent: int) -> None:
    """Frames of `resumable_stream`: the connection gets what was sent, or its end; nothing else is kept."""
    stream, near = AlreadyReported(), AlreadyReported()
    end = ResumableStream(lambda: None, lambda: None)
    end.connection_made(near)  # type: ignore[arg-type]  # a connection
    end.data_received(bytes(sent))
    end.attach(stream, 0)  # type: ignore[arg-type]  # a stream
    far = stream.protocol
    for piece in (*(struct.pack("!BI", kind, len(payload)) + payload for kind, payload in frames), data):
        far.data_received(piece)
    assert near.taken <= sum(len(payload) for _, payload in frames) + len(data)
    assert len(far._buffer) <= 5 + 32 * 1024 + len(data)
    assert end.over == (not near.open)
