"""Frames between a step's supervisors and its client."""

from __future__ import annotations

import pytest

from spritz.stepd import protocol
from spritz.stepd.clients.numbered import Kept


def test_frames_survive_any_cut_of_the_stream() -> None:
    hello = protocol.Hello(protocol.VERSION, "key", "n1", 0, 5, 0, (0, 3), 77)
    sent = [
        protocol.encode_hello(hello),
        protocol.encode_started((10, 11)),
        protocol.frame(protocol.STDOUT, 3, b"hello\n"),
        protocol.frame(protocol.STDOUT, 3),
        protocol.frame(protocol.EXIT, 3, protocol.pack_exit(256, protocol.EXIT_OOM)),
        protocol.frame(protocol.WINDOW_SIZE, 0, protocol.pack_window(24, 80)),
        protocol.frame(protocol.DONE),
    ]
    stream = b"".join(sent)
    whole = protocol.Decoder().feed(stream)
    decoder = protocol.Decoder()
    piecewise = [frame for byte in stream for frame in decoder.feed(bytes([byte]))]
    assert whole == piecewise
    assert [kind for kind, _, _ in whole] == [
        protocol.HELLO,
        protocol.STARTED,
        protocol.STDOUT,
        protocol.STDOUT,
        protocol.EXIT,
        protocol.WINDOW_SIZE,
        protocol.DONE,
    ]
    assert protocol.decode_hello(whole[0][2]) == hello
    assert protocol.decode_started(whole[1][2]).pids == (10, 11)
    assert whole[2] == (protocol.STDOUT, 3, b"hello\n")
    assert protocol.unpack_exit(whole[4][2]) == (256, protocol.EXIT_OOM)
    assert protocol.unpack_window(whole[5][2]) == (24, 80)
    assert whole[6] == (protocol.DONE, protocol.ALL_TASKS, b"")


def test_a_long_stream_becomes_several_frames_and_none_for_nothing() -> None:
    data = b"x" * (protocol.PAYLOAD_BYTES_MAX + 1)
    found = protocol.Decoder().feed(protocol.frames(protocol.STDIN, 1, data))
    assert [len(payload) for _, _, payload in found] == [protocol.PAYLOAD_BYTES_MAX, 1]
    assert protocol.frames(protocol.STDIN, 1, b"") == b""


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", bytes([protocol.STDOUT]) + b"\0\0\0\0" + b"\xff" * 4])
def test_a_peer_that_speaks_something_else_is_found_out(data: bytes) -> None:
    with pytest.raises(protocol.ProtocolError, match="impossible frame"):
        protocol.Decoder().feed(data)


def test_bad_payloads_are_protocol_errors() -> None:
    for decode in (protocol.decode_hello, protocol.decode_started, protocol.unpack_exit, protocol.unpack_number):
        with pytest.raises(protocol.ProtocolError):
            decode(b"\xc1nonsense")
    other = protocol.Hello(99, "key", "n1", 0, 5, 0, (0,))
    with pytest.raises(protocol.ProtocolError, match="version 99"):
        protocol.decode_hello(protocol.encode_hello(other)[protocol.HEADER_BYTES :])


def test_addresses_are_abstract_sockets_or_paths() -> None:
    assert protocol.parse_address("unix:@srun-1") == "\0srun-1"
    assert protocol.parse_address("unix:/run/x.sock") == "/run/x.sock"
    for bad in ("", "unix:", "tcp:host", "tcp:127.0.0.1:7001", "tcp:[::1]:7001", "udp:a:1"):
        with pytest.raises(ValueError, match="not an address"):
            protocol.parse_address(bad)


def test_frames_for_another_node_travel_whole() -> None:
    inner = [
        protocol.frame(protocol.STDIN, 1, b"x" * protocol.PAYLOAD_BYTES_MAX),
        protocol.frame(protocol.SIGNAL, protocol.ALL_TASKS, protocol.pack_number(2)),
        protocol.frame(protocol.STDIN, 1, b"y" * protocol.PAYLOAD_BYTES_MAX),
    ]
    found = protocol.Decoder().feed(protocol.via(7, b"".join(inner)))
    assert {(kind, place) for kind, place, _ in found} == {(protocol.VIA, 7)}
    for _, _, payload in found:
        decoder = protocol.Decoder()
        again = b"".join(protocol.frame(*one) for one in decoder.feed(payload))
        assert again == payload, "no frame is cut in two"
    assert b"".join(payload for _, _, payload in found) == b"".join(inner)


def test_what_was_not_taken_is_said_again_and_nothing_else() -> None:
    kept = Kept()
    for word in (b"one ", b"two ", b"three"):
        kept.add(word)
    kept.take(6)
    assert (kept.all(), kept.bytes, kept.taken) == (b"o three", 7, 6)
    kept.take(8)
    kept.add(b" four")
    assert kept.all() == b"three four"
    for impossible in (7, 19):
        with pytest.raises(protocol.ProtocolError):
            kept.take(impossible)
    kept.take(18)
    assert (kept.all(), kept.bytes) == (b"", 0)
