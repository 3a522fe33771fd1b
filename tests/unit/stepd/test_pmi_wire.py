"""PMI's messages as bytes. Source: MPICH's simple PMI clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.stepd.pmi_wire import Decoder, WireError, framed, line, process_mapping

names = st.text("abcdefgh-", min_size=1, max_size=9).map(str.encode)
values = st.binary(max_size=60).filter(lambda value: b"\0" not in value and not value.startswith(b";"))


@given(st.lists(st.dictionaries(names, values, min_size=1), min_size=1, max_size=5), st.integers(1, 50))
def test_framed_messages_come_out_as_they_went_in(messages: list[dict[bytes, bytes]], piece: int) -> None:
    data = b"".join(map(framed, messages))
    decoder = Decoder()
    decoder.framed = True
    found = []
    for at in range(0, len(data), piece):
        decoder.feed(data[at : at + piece])
        while (message := decoder.next()) is not None:
            found.append(message)
    assert found == messages


def test_a_semicolon_is_doubled() -> None:
    assert framed({b"value": b"a;b"}) == b"    11value=a;;b;"


def test_lines_are_words_and_a_greeting_may_be_followed_by_frames() -> None:
    decoder = Decoder()
    greeting = {b"cmd": b"init", b"pmi_version": b"2"}
    decoder.feed(line(greeting) + framed({b"cmd": b"fullinit"})[:9])
    assert decoder.next() == greeting
    decoder.framed = True
    assert decoder.next() is None
    decoder.feed(framed({b"cmd": b"fullinit"})[9:])
    assert decoder.next() == {b"cmd": b"fullinit"}


@pytest.mark.parametrize("data", [b"abcdefgh", b"999999999", b"    -1xx"])
def test_what_is_no_length_is_refused(data: bytes) -> None:
    decoder = Decoder()
    decoder.framed = True
    decoder.feed(data)
    with pytest.raises(WireError):
        decoder.next()


@pytest.mark.parametrize(
    ("nodes", "mapping"),
    [
        (((0, 1), (2, 3)), "(vector,(0,2,2))"),
        (((0, 2), (1, 3)), "(vector,(0,2,1),(0,2,1))"),
        (((0, 1, 2), (3,)), "(vector,(0,1,3),(1,1,1))"),
        (((0,), (1,), (2,)), "(vector,(0,3,1))"),
        (((0,),), "(vector,(0,1,1))"),
    ],
)
def test_the_mapping_tells_which_ranks_share_a_node(nodes: tuple[tuple[int, ...], ...], mapping: str) -> None:
    assert process_mapping(nodes) == mapping
