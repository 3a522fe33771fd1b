"""Signals: sbatch(1) --signal; scancel(1) --signal."""

from __future__ import annotations

import signal

import pytest

from spritz.notation import signals
from spritz.notation.signals import SignalError, SignalOption


def test_names_and_numbers_are_the_systems() -> None:
    for known in signal.Signals:
        if known.name not in ("SIGRTMIN", "SIGRTMAX"):
            assert signals.parse_signal(known.name) == known
            assert signals.parse_signal(signals.signal_name(known)) == known


def test_descriptions_are_the_systems() -> None:
    for number in range(1, 65):
        description = signal.strsignal(number) or f"Unknown signal {number}"
        assert signals.signal_description(number) == description
    assert signals.signal_description(99) == "Unknown signal 99"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("USR1", 10),
        ("SIGUSR1", 10),
        ("usr1", 10),
        ("10", 10),
        ("64", 64),
        ("RTMIN", 34),
        ("RTMIN+1", 35),
        ("RTMAX-1", 63),
    ],
)
def test_reads_signals(text: str, number: int) -> None:
    assert signals.parse_signal(text) == number


@pytest.mark.parametrize(
    "text", ["", "0", "65", "FOO", "SIG", "-9", "RTMIN+31", "RTMIN-1", "RTMAX+1", "RTMIN+", "١", "\udcff", "9" * 99]
)
def test_refuses_what_is_no_signal(text: str) -> None:
    with pytest.raises(SignalError):
        signals.parse_signal(text)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("USR1", SignalOption(10)),
        ("SIGUSR1@90", SignalOption(10, 90)),
        ("B:USR1@90", SignalOption(10, 90, batch=True)),
        ("R:10@10", SignalOption(10, 10, reservation=True)),
        ("RB:10@0", SignalOption(10, 0, batch=True, reservation=True)),
        ("br:10", SignalOption(10, 60, batch=True, reservation=True)),
        ("2@65535", SignalOption(2, 65535)),
    ],
)
def test_reads_the_option(text: str, option: SignalOption) -> None:
    assert signals.parse_signal_option(text) == option


@pytest.mark.parametrize(
    "text", ["", "FOO", "0", "99", "USR1@", "USR1@x", "USR1@70000", "USR1@-1", "B:", ":USR1", "X:10", "R:B:10", "BB:10"]
)
def test_refuses_what_is_no_option(text: str) -> None:
    with pytest.raises(SignalError, match="^Invalid --signal specification"):
        signals.parse_signal_option(text)
