"""Any bytes survive the two forms of text that is not UTF-8."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spritz.notation.octets import octets, plain, restored


@given(st.binary(max_size=40))
def test_bytes_come_out_as_they_went_in_and_can_be_encoded_in_between(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    sent = plain(text)
    assert sent.encode("utf-8").decode("utf-8") == sent
    if not any(letter >= "\U0010ff80" for letter in text):  # characters without a meaning, read as bytes
        assert restored(sent) == text
        assert octets(sent) == octets(text) == data


def test_utf8_is_left_alone() -> None:
    assert plain("café") == restored("café") == "café"
    assert octets("café") == b"caf\xc3\xa9"
