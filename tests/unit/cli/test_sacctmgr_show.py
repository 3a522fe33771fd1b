"""sacctmgr show: what it takes beside conditions."""

from __future__ import annotations

import io

import pytest

from spritz.cli.context import Context
from spritz.cli.manager.show import Style, show
from spritz.cli.manager.words import Word
from spritz.model.errors import SpritzError
from spritz.model.limits.records import Book


@pytest.mark.parametrize("word", ["WithDeleted", "withdel"])
def test_a_modifier_that_is_not_built_is_refused_by_name(word: str) -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    with pytest.raises(SpritzError, match=f"{word} is not supported"):
        show("association", [Word("", "=", word, word)], Book(), Style(), context)
