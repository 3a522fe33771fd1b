"""What `spritz token list` says while the cluster's key is being replaced."""

from __future__ import annotations

import pytest

from spritz.cli.local.token import _readiness
from spritz.model.node.machines import CERTIFICATE_DAYS, JoinedMachine, Tokens

NOW = 1e9
OLD, NEW, OTHER = "old" * 9, "new" * 9, "other" * 9
YES = "yes, all machines are ready"


def machines(**keys: tuple[str, ...]) -> tuple[JoinedMachine, ...]:
    """Machines by name, with the keys of the cluster when each was certified."""
    return tuple(
        JoinedMachine(host=host, role="node", joined_at=0.0, certified_at=NOW - 86400, token_id="0", keys=known)
        for host, known in keys.items()
    )


@pytest.mark.parametrize(
    ("keys", "joined", "default", "alone"),
    [
        ((OLD, NEW), machines(), YES, YES),
        ((OLD, NEW), machines(n1=(OLD, NEW), n2=(OLD, NEW)), YES, YES),
        ((OLD, NEW), machines(n1=(OLD, NEW), n2=(OLD,), n3=()), "NOT YET, it would cut off n[2-3]", "n3"),
        ((NEW, OLD), machines(n1=(NEW, OLD), n2=(OLD, NEW)), YES, "NOT YET, it would cut off n2"),
        ((NEW, OLD), machines(n1=(NEW, OLD), n2=(NEW, OLD)), YES, YES),
    ],
)
def test_each_step_names_the_machines_that_it_would_cut_off(
    keys: tuple[str, ...], joined: tuple[JoinedMachine, ...], default: str, alone: str
) -> None:
    lines = _readiness(Tokens(tokens=(), machines=joined, keys=keys), NOW)
    assert lines[1] == f"The cluster has 2 keys. Default: {keys[0][:8]}"
    assert lines[2].startswith(f"  {keys[1][:8]} may become the default: ")
    assert lines[2].endswith(default)
    assert lines[3].startswith(f"  {keys[0][:8]} may become the only key: ")
    assert lines[3].endswith(alone)
    assert len(lines) == (4 if default == alone == YES else 6), "what to do, where something is to be done"


@pytest.mark.parametrize(
    ("keys", "joined", "named"),
    [
        ((NEW,), machines(n1=(NEW, OLD)), ""),
        ((NEW,), machines(n1=(OLD, NEW), n2=(NEW,)), "n1."),
        ((OTHER, OLD), machines(n1=(OLD, NEW), n2=(OTHER, OLD)), "n1."),
        ((OLD,), machines(n1=()), ""),  # certified by a release that did not note the keys
        ((), machines(n1=()), ""),  # of an earlier controller
    ],
)
def test_machines_that_a_step_has_cut_off_are_named(
    keys: tuple[str, ...], joined: tuple[JoinedMachine, ...], named: str
) -> None:
    text = "\n".join(_readiness(Tokens(tokens=(), machines=joined, keys=keys), NOW))
    assert ("Cut off, since a step came too early: " in text) == bool(named)
    assert named in text


def test_a_machine_whose_certificate_has_ended_is_not_waited_for() -> None:
    joined, later = machines(n1=(OLD,)), NOW + CERTIFICATE_DAYS * 86400
    assert "NOT YET" in "".join(_readiness(Tokens(tokens=(), machines=joined, keys=(OLD, NEW)), NOW))
    assert "NOT YET" not in "".join(_readiness(Tokens(tokens=(), machines=joined, keys=(OLD, NEW)), later))
    assert _readiness(Tokens(tokens=(), machines=joined, keys=(NEW,)), later) == []
