"""The event loop of step supervisors: timers."""

from __future__ import annotations

import pytest

from spritz.stepd import reactor as module
from spritz.stepd.reactor import Reactor


def test_a_timer_that_is_years_away_is_waited_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """poll(2) takes 31 bits of milliseconds, and raised OverflowError for more."""
    reactor = Reactor()
    waits: list[float | None] = []

    class Poll:
        def poll(self, wait: float | None) -> list[tuple[int, int]]:
            waits.append(wait)
            reactor.stop()
            return []

    monkeypatch.setattr(reactor, "_poll", Poll())
    reactor.after(1e12, lambda: None)
    reactor.run()
    assert waits == [module._PATIENCE_MS_MAX]
    assert module._PATIENCE_MS_MAX < 2**31
