"""What libpmix has in memory, made and read without it."""

from __future__ import annotations

import ctypes

from spritz.stepd.pmix.binding import options, strings
from spritz.stepd.pmix.values import BOOL, DATA_ARRAY, INT, STRING, UINT16, UINT32, Info, Infos, Proc, Published


def test_structures_are_as_large_as_in_c() -> None:
    """Source: sizeof of pmix_proc_t, pmix_info_t, pmix_pdata_t in versions 4.2 and 5.0 on 64 bits."""
    assert [ctypes.sizeof(one) for one in (Proc, Info, Published)] == [260, 552, 808]


def test_an_array_is_read_as_it_was_made() -> None:
    inner = Infos()
    inner.number("small", 0xFFFF, UINT16)
    infos = Infos()
    infos.text("name", "worth")
    infos.number("many", 0xFFFFFFFF, UINT32)
    infos.array("inner", inner)
    read = (Info * len(infos)).from_address(infos.address)
    assert [(one.key, one.value.type) for one in read] == [
        (b"name", STRING),
        (b"many", UINT32),
        (b"inner", DATA_ARRAY),
    ]
    assert ctypes.string_at(read[0].value.data[0]) == b"worth"
    assert read[1].value.data[0] == 0xFFFFFFFF
    kind, count, where = (ctypes.c_size_t * 3).from_address(read[2].value.data[0])
    assert (kind & 0xFFFF, count) == (24, 1)
    assert Info.from_address(where).value.data[0] == 0xFFFF


def test_options_are_numbers_or_yes_and_no() -> None:
    infos = Infos()
    infos.number("pmix.wait", 1, BOOL)
    infos.number("pmix.timeout", -3, INT)
    infos.number("off", 0, BOOL)
    infos.text("pmix.hname", "n1")
    found = options(infos.address, len(infos))
    assert found == {b"pmix.wait": True, b"pmix.timeout": -3, b"off": False}
    assert found[b"pmix.wait"] is True
    assert options(None, 0) == {}


def test_strings_end_with_null() -> None:
    array = (ctypes.c_char_p * 3)(b"a", b"bc", None)
    assert strings(ctypes.addressof(array)) == (b"a", b"bc")
    assert strings(None) == ()
