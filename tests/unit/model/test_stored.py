"""The envelope of stored values: older formats are brought up to date, and nothing unknown is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import DecodeError, Struct, ValidationError, msgpack

from spritz.model import stored, upcast
from spritz.model.errors import UnsupportedFormat


class Place(Struct, frozen=True, array_like=True):
    x: int
    y: int = 0


class Wheel(Struct, frozen=True, omit_defaults=True):
    size_mm: int = 0


class Made(Struct, frozen=True, tag=True, tag_field="kind"):
    wheels: tuple[Wheel, ...] = ()
    spare: Wheel | None = None
    by_name: dict[str, Wheel] = {}
    pair: tuple[Wheel, int] | None = None
    place: Place = Place(0)


class Sold(Struct, frozen=True, tag=True, tag_field="kind"):
    price: int


EVENTS = msgpack.Decoder(list[Made | Sold])
WHEEL = msgpack.Decoder(Wheel)


@pytest.fixture(autouse=True)
def formats(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This release writes format 4; wheels had sizes in cm up to format 2, and other names in 1; in 3 came `Sold`."""

    def to_size_cm(wheel: dict[str, Any]) -> None:
        wheel["size_cm"] = wheel.pop("cm")

    def to_millimetres(wheel: dict[str, Any]) -> None:
        wheel["size_mm"] = 10 * wheel.pop("size_cm")

    def to_sold(event: dict[str, Any]) -> None:
        event["kind"] = "Sold"

    def to_price(event: dict[str, Any]) -> None:
        event["price"] = event.pop("cost")

    def without_name(place: list[Any]) -> None:
        del place[0]

    changes: dict[int, dict[str, upcast.Change]] = {
        1: {"Wheel": to_size_cm, "GivenAway": to_sold, "Place": without_name},
        2: {"Wheel": to_millimetres, "Sold": to_price},
    }
    monkeypatch.setattr(stored, "FORMAT", 4)
    head = msgpack.encode((4, stored.FINGERPRINT, None))[:-1]
    monkeypatch.setattr(stored, "_HEAD", head)
    assert len(head) == stored._HEAD_BYTES
    monkeypatch.setattr(upcast, "CHANGES", changes)
    upcast._walk_from.cache_clear()
    yield
    upcast._walk_from.cache_clear()


def in_format(number: int, value: object, fingerprint: int = 0xFFFFFFFF) -> bytes:
    """As another release or build encodes it; format 1 has no envelope."""
    return msgpack.encode(value if number == 1 else (number, fingerprint, value))


def made(**fields: object) -> list[dict[str, object]]:
    return [{"kind": "Made", **fields}]


@pytest.mark.parametrize("place", ["wheels", "spare", "by_name", "pair"])
def test_a_change_reaches_a_record_wherever_it_is_stored(place: str) -> None:
    def at(wheel: object) -> object:
        values = {"wheels": [wheel, wheel], "spare": wheel, "by_name": {"front": wheel}, "pair": [wheel, 3]}
        return values[place]

    now = EVENTS.decode(msgpack.encode(made(**{place: at({"size_mm": 70})})))
    old: dict[int, object] = {1: {"cm": 7}, 2: {"size_cm": 7}, 3: {"size_mm": 70}, 4: {"size_mm": 70}}
    for number, wheel in old.items():
        assert stored.decode(in_format(number, made(**{place: at(wheel)})), EVENTS) == now


def test_an_event_may_change_its_kind_and_then_again_its_fields() -> None:
    assert stored.decode(in_format(1, [{"kind": "GivenAway", "cost": 3}]), EVENTS) == [Sold(price=3)]
    assert stored.decode(in_format(2, [{"kind": "Sold", "cost": 3}]), EVENTS) == [Sold(price=3)]


def test_records_that_are_arrays_are_changed_too() -> None:
    assert stored.decode(in_format(1, made(place=["home", 1, 2])), EVENTS) == [Made(place=Place(1, 2))]
    with pytest.raises(UnsupportedFormat, match="3 fields of Place; this release knows 2"):
        stored.decode(in_format(2, made(place=[1, 2, 3])), EVENTS)


@given(st.lists(st.builds(Made, wheels=st.lists(st.builds(Wheel, size_mm=st.integers(0, 9))).map(tuple))))
def test_what_this_release_wrote_is_read_without_a_walk(events: list[Made]) -> None:
    data = stored.encode(events)
    walked = upcast._walk_from.cache_info().misses
    assert stored.decode(data, EVENTS) == events
    assert upcast._walk_from.cache_info().misses == walked


def test_a_newer_format_is_refused_whatever_is_in_it() -> None:
    values: tuple[object, ...] = ([], {"size_mm": 1}, 7)
    for value in values:
        with pytest.raises(UnsupportedFormat, match="format 5 of a later release; this one reads up to format 4"):
            stored.decode(in_format(5, value), EVENTS)


def test_what_this_release_does_not_know_is_refused() -> None:
    for number in (1, 2, 3, 4):
        with pytest.raises(UnsupportedFormat, match="a field 'colour' of Made that"):
            stored.decode(in_format(number, made(colour="red")), EVENTS)
        with pytest.raises(UnsupportedFormat, match="a record 'Stolen' that"):
            stored.decode(in_format(number, [{"kind": "Stolen"}]), EVENTS)
    with pytest.raises(UnsupportedFormat, match="a field 'rim' of Wheel that"):
        stored.decode(in_format(4, {"rim": 1}), WHEEL)
    with pytest.raises(UnsupportedFormat, match="Expected `int`, got `str`"):
        stored.decode(in_format(4, {"size_mm": "large"}), WHEEL)


def test_damage_is_told_from_another_format() -> None:
    data = stored.encode([Sold(price=3)])
    for cut in range(len(data)):
        with pytest.raises((DecodeError, UnsupportedFormat)) as caught:
            stored.decode(data[:cut], EVENTS)
        assert not isinstance(caught.value, UnsupportedFormat) or cut < 2, "one byte may be a whole number"
    with pytest.raises(ValidationError):
        stored.decode(stored.encode([{"kind": "Sold"}]), EVENTS)
    with pytest.raises(DecodeError):
        stored.decode(data.replace(b"price", b"\xff\xff\xff\xff\xff"), EVENTS)
