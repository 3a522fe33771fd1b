"""Answers of forked children: a user has no more of them than remain free for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spritz.controller.api import children
from spritz.controller.api.children import Children
from spritz.controller.forked import ForkRefused
from spritz.model.cluster.settings import SYSTEM
from spritz.model.rejection import Rejection
from spritz.runtime.log import get_logger
from spritz_testing.builders import ALICE, BOB


def test_a_user_leaves_places_to_others_and_a_refused_fork_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Callable[[bytes | None], None]] = []
    refused = False

    def child(name: str, work: Any, done: Callable[[bytes | None], None], *_: Any, **__: Any) -> None:
        if refused:
            raise ForkRefused("Resource temporarily unavailable", code="ESLURM_INTERNAL")
        ends.append(done)

    monkeypatch.setattr(children, "Child", child)
    here = Children("explain", "explanations", get_logger("test"))

    def ask(caller: Any) -> bool:
        """Whether the caller gets a child."""
        refusal = here.refusal(caller)
        if refusal is None:
            here.start(caller, lambda: b"", lambda result: None)
        else:
            assert isinstance(refusal, Rejection)
            assert "too many explanations" in refusal.hint
        return refusal is None

    assert [ask(ALICE) for _ in range(3)] == [True, True, False]
    assert [ask(BOB) for _ in range(2)] == [True, False]
    assert [ask(SYSTEM) for _ in range(2)] == [True, False], "all four are in use"
    ends[0](b"")
    refused = True
    with pytest.raises(ForkRefused):
        ask(SYSTEM)
    refused = False
    assert ask(SYSTEM)
