"""TRES lists as accounting keeps them."""

from __future__ import annotations

from spritz.notation.tres import format, parse


def test_memory_is_read_as_it_is_written() -> None:
    for mib in (0, 1, 1024, 1536, 2560, 1500, 1024 * 1024 + 512 * 1024):
        assert parse(format([("mem", mib)])) == (("mem", mib),)
