"""slurmd's command line. Source: slurmd(8)."""

from __future__ import annotations

import pytest

from spritz.model.errors import SpritzError
from spritz.node.options import parse


def test_long_options_take_their_value_after_equals_or_as_the_next_word() -> None:
    assert parse(["--extra", '{"a": 1}', "-Dvv"]).extra == '{"a": 1}'
    given = parse(["-Z", "--conf=CPUs=4", "--extra="])
    assert (given.conf, given.dynamic, given.extra, given.verbose) == ("CPUs=4", True, "", 0)
    assert parse(["-D"]).extra is None
    with pytest.raises(SpritzError, match="requires an argument"):
        parse(["--extra"])
