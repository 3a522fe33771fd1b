"""Frames are cut the same however the bytes arrive, and nonsense is found out at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.wire.frames import FRAME_BYTES_MAX, FrameDecoder, FrameError, FrameTooLong, frame


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=20), st.integers(1, 64))
def test_frames_come_out_whole_and_in_order_however_the_stream_is_cut(payloads: list[bytes], piece: int) -> None:
    stream = b"".join(frame(payload) for payload in payloads)
    decoder = FrameDecoder()
    got: list[bytes] = []
    for start in range(0, len(stream), piece):
        got += decoder.feed(stream[start : start + piece])
    assert got == payloads
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize(
    ("garbage", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "impossible frame length"),
        (b"\x16\x03\x01\x02\x00", "a TLS handshake, but this daemon found no key of the cluster"),
        (b"\xff" * 8, "impossible frame length"),
        (b"\0\0\0\0", "impossible frame length"),
    ],
)
def test_another_protocol_is_refused_by_its_first_bytes(garbage: bytes, words: str) -> None:
    with pytest.raises(FrameError, match=words):
        FrameDecoder().feed(garbage)


def test_a_length_over_the_limit_is_refused_before_its_bytes_are_stored() -> None:
    decoder = FrameDecoder(frame_bytes_max=100)
    assert decoder.feed(b"\0\0\0\x64") == []
    assert decoder.feed(b"x" * 100) == [b"x" * 100]
    with pytest.raises(FrameTooLong):
        decoder.feed(b"\0\0\0\x65" + b"x" * 101)
    assert decoder.buffered_bytes == 0


def test_the_length_of_an_incomplete_frame_is_known_before_its_bytes() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"\0\0") == []
    assert decoder.expected_bytes == 0
    decoder.feed(b"\0\x05ab")
    assert (decoder.expected_bytes, decoder.buffered_bytes) == (9, 6)
    assert decoder.feed(b"cde" + b"\0\0\x01\0z") == [b"abcde"]
    assert (decoder.expected_bytes, decoder.buffered_bytes) == (260, 5)
    assert decoder.feed(b"z" * 255) == [b"z" * 256]
    assert (decoder.expected_bytes, decoder.buffered_bytes) == (0, 0)


def test_the_first_frame_has_its_own_limit() -> None:
    decoder = FrameDecoder(frame_bytes_max=1000, first_bytes_max=10)
    assert decoder.feed(frame(b"hello") + frame(b"x" * 1000)) == [b"hello", b"x" * 1000]
    with pytest.raises(FrameError, match="impossible frame length 11"):
        FrameDecoder(frame_bytes_max=1000, first_bytes_max=10).feed(frame(b"x" * 11))


def test_a_payload_over_the_limit_is_not_framed() -> None:
    with pytest.raises(FrameError, match="longer than"):
        frame(memoryview(bytearray(FRAME_BYTES_MAX + 1)))


def test_a_large_frame_in_many_pieces_is_put_together() -> None:
    payload = bytes(range(256)) * 40_000
    stream = frame(payload)
    decoder = FrameDecoder()
    got = [f for start in range(0, len(stream), 65536) for f in decoder.feed(stream[start : start + 65536])]
    assert got == [payload]
