"""Envelopes survive the wire, peers of other releases are understood or told why not, and bad bodies are named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from spritz.model.errors import SpritzError
from spritz.model.rejection import Rejection
from spritz.notation.octets import plain
from spritz.wire.envelope import (
    NO_BODY,
    Failure,
    Hello,
    Request,
    Response,
    decode_envelope,
    encode,
    encode_failure,
    encode_reply,
    encode_request,
    encode_response,
    failure,
    failure_of,
)
from spritz.wire.frames import FrameDecoder, FrameError
from spritz.wire.requests import BadRequest, RequestDecoder
from spritz.wire.versions import VERSION, IncompatiblePeer, hello, negotiate


class Ask(Struct, frozen=True, kw_only=True):
    text: str = "x"
    counts: list[int] = []
    blob: bytes = b""


class Other(Struct, frozen=True, kw_only=True):
    text: str = "y"


def payload(frame: bytes) -> bytes:
    [inner] = FrameDecoder().feed(frame)
    return inner


@given(st.integers(0, 2**62), st.text(), st.lists(st.integers(-(2**62), 2**62)), st.binary())
def test_a_request_arrives_as_it_was_asked(request_id: int, text: str, counts: list[int], blob: bytes) -> None:
    ask = Ask(text=text, counts=counts, blob=blob)
    request = decode_envelope(payload(encode_request(request_id, ask)))
    assert isinstance(request, Request)
    assert (request.id, request.kind, request.token) == (request_id, "Ask", None)
    assert RequestDecoder({Ask, Other}).decode(request) == ask


@given(st.binary(max_size=30))
def test_text_that_is_not_utf8_travels_in_plain_form(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    request = decode_envelope(payload(encode_request(1, Ask(text=text, counts=[1], blob=data))))
    assert isinstance(request, Request)
    assert RequestDecoder({Ask}).decode(request) == Ask(text=plain(text), counts=[1], blob=data)


def test_a_response_carries_its_body_or_its_failure_or_nothing() -> None:
    answer = decode_envelope(payload(encode_response(5, Ask(text="z"), more=True)))
    assert isinstance(answer, Response)
    assert answer.more
    assert msgspec.msgpack.decode(answer.body, type=Ask) == Ask(text="z")
    refused = decode_envelope(payload(encode_failure(6, failure("ESLURM_INVALID_JOB_ID", hint="squeue"))))
    assert isinstance(refused, Response)
    assert refused.error == Failure(
        code="ESLURM_INVALID_JOB_ID", errno=2017, message="Invalid job id specified", hint="squeue"
    )
    ended = decode_envelope(payload(encode_reply(7)))
    assert isinstance(ended, Response)
    assert (ended.id, bytes(ended.body), ended.more) == (7, NO_BODY, False)


def test_failures_keep_code_text_hint_and_exit_code() -> None:
    assert failure_of(Rejection(code="ESLURM_ACCESS_DENIED")).message == "Access/permission denied"
    made = failure_of(SpritzError("no such thing", code="X", hint="try", exit_code=4))
    assert made == Failure(code="X", errno=1, message="no such thing", hint="try", exit_code=4)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_envelope_are_a_frame_error_and_nothing_else(data: bytes) -> None:
    try:
        decode_envelope(data)
    except FrameError:
        pass


@pytest.mark.parametrize(
    "data", [b"", b"\xc0", b"\x90", b"\x91\x07", b"\x92\x01\xa1x", b"\x94\x01\x01\xa1\xff\xc0", b"\x91" * 5000]
)
def test_malformed_envelopes_are_refused(data: bytes) -> None:
    with pytest.raises(FrameError, match="not an envelope"):
        decode_envelope(data)


def test_fields_of_a_newer_release_are_ignored() -> None:
    newer = msgspec.msgpack.encode([1, 9, "Ask", {"text": "hi", "colour": "red"}, None, 1, "added later", 7])
    request = decode_envelope(newer)
    assert isinstance(request, Request)
    assert RequestDecoder([Ask]).decode(request) == Ask(text="hi")


@pytest.mark.parametrize("body", [{"text": 5}, {"counts": "no"}, [1], None, "x"])
def test_a_body_that_does_not_fit_names_the_request_and_the_field(body: Any) -> None:
    request = Request(id=1, kind="Ask", body=msgspec.Raw(msgspec.msgpack.encode(body)))
    with pytest.raises(BadRequest, match="bad Ask: Expected"):
        RequestDecoder([Ask]).decode(request)


def test_unknown_kinds_and_tokens_are_refused_by_name() -> None:
    table = RequestDecoder([Ask])
    with pytest.raises(BadRequest, match="'Nonsense' is not a request"):
        table.decode(Request(id=1, kind="Nonsense", body=msgspec.Raw(NO_BODY)))
    with pytest.raises(BadRequest, match="tokens are not supported") as refused:
        table.decode(Request(id=1, kind="Ask", body=msgspec.Raw(b"\x80"), token=b"signed"))
    assert refused.value.code == "SLURM_PROTOCOL_AUTHENTICATION_ERROR"


def test_two_requests_of_one_name_are_a_programming_error() -> None:
    twin = msgspec.defstruct("Ask", [])
    with pytest.raises(ValueError, match="two requests are called Ask"):
        RequestDecoder([Ask, twin])


def test_peers_agree_on_the_highest_version_that_both_speak() -> None:
    assert negotiate(hello("command")) == VERSION
    newer = Hello(magic="spritz", version_min=VERSION, version_max=99, software="spritz 9.0", role="slurmd")
    assert negotiate(newer) == VERSION
    sent = decode_envelope(payload(encode(newer)))
    assert sent == newer


@pytest.mark.parametrize(("low", "high"), [(2, 9), (0, 0)])
def test_peers_without_a_common_version_are_told_both_ranges(low: int, high: int) -> None:
    theirs = Hello(magic="spritz", version_min=low, version_max=high, software="spritz 9.0", role="slurmd")
    with pytest.raises(IncompatiblePeer, match=rf"spritz 9\.0 \(slurmd\) speaks protocol {low} to {high}"):
        negotiate(theirs)


def test_another_program_that_says_hello_is_not_a_peer() -> None:
    with pytest.raises(IncompatiblePeer, match="magic"):
        negotiate(Hello(magic="munge", version_min=1, version_max=1, software="?", role="?"))
