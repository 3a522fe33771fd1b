"""A peer that does wrong a thousand times gets a line a minute in the log, with how many there were."""

from __future__ import annotations

from typing import Any, cast

from spritz.client.channel.log_throttle import EVERY_SECONDS, PEERS_MAX, LogThrottle
from spritz.runtime.log import Logger, format_event


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tracebacks = 0

    def error(self, event: str, *, exception: BaseException | None = None, **fields: Any) -> None:
        self.lines.append(format_event(event, fields))
        self.tracebacks += exception is not None


def complaints() -> tuple[LogThrottle, Lines]:
    lines = Lines()
    return LogThrottle(cast(Logger, lines)), lines


def test_one_line_for_each_peer_and_minute_with_the_count_of_the_others() -> None:
    told, log = complaints()
    for tick in range(1000):
        told.write("request.failed", 1001, tick * 0.05, exception=ValueError(), kind="SubmitJob")
    assert log.lines == ["request.failed kind=SubmitJob"]
    assert log.tracebacks == 1
    told.write("request.failed", 1001, EVERY_SECONDS + 1, kind="SubmitJob")
    assert log.lines[1:] == ["request.failed kind=SubmitJob suppressed=999"]
    assert told.counts == {"request.failed": 1001}


def test_peers_and_kinds_are_told_apart() -> None:
    told, log = complaints()
    for peer in (1001, 1002, "192.0.2.1", None):
        for event in ("request.failed", "connection.garbage"):
            for _ in range(3):
                told.write(event, peer, 5.0)
    assert len(log.lines) == 8


def test_a_harmless_fault_does_not_hide_another() -> None:
    told, log = complaints()
    for sort in ("expired", "expired", "forged", "forged", "forged"):
        told.write("machine.refused", "n1", 5.0, sort=sort, peer="n1", reason=sort)
    assert log.lines == ["machine.refused peer=n1 reason=expired", "machine.refused peer=n1 reason=forged"]
    told.flush(5.0 + EVERY_SECONDS)
    assert log.lines[2:] == [
        "machine.refused peer='address n1' suppressed=1 sort=expired",
        "machine.refused peer='address n1' suppressed=2 sort=forged",
    ]


def test_what_was_left_out_is_told_when_the_minute_is_over_though_nothing_more_comes() -> None:
    told, log = complaints()
    for _ in range(5):
        told.write("connection.garbage", "192.0.2.1", 1.0)
    told.flush(2.0)
    assert len(log.lines) == 1
    told.flush(1.0 + EVERY_SECONDS)
    assert log.lines[1:] == ["connection.garbage peer='address 192.0.2.1' suppressed=4"]
    told.flush(2.0 + 2 * EVERY_SECONDS)
    told.flush(3.0 + 3 * EVERY_SECONDS)
    assert len(log.lines) == 2


def test_many_peers_do_not_make_many_lines() -> None:
    told, log = complaints()
    for peer in range(3 * PEERS_MAX):
        told.write("connection.garbage", f"2001:db8::{peer:x}", 1.0)
    assert len(log.lines) == PEERS_MAX + 1
    told.flush(1.0 + EVERY_SECONDS)
    assert f"suppressed={2 * PEERS_MAX - 1}" in log.lines[-1]
