"""What slurmdbd sends of an edit, applied by a controller, is what it would have sent whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spritz.model.limits.change import amended, change_between, is_empty
from spritz.model.limits.records import Association, Policy, Qos, WcKey

_NAMES = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def policies(draw: st.DrawFn, version: int) -> Policy:
    """In slurmdbd's order, as it sends them."""
    associations = draw(
        st.dictionaries(st.integers(1, 8), st.tuples(_NAMES, _NAMES | st.just(""), st.integers(1, 3)), max_size=6)
    )
    qos = draw(st.dictionaries(_NAMES, st.integers(0, 3), max_size=4))
    wckeys = draw(st.sets(st.tuples(_NAMES, _NAMES), max_size=4))
    defaults = draw(st.dictionaries(_NAMES, _NAMES, max_size=4))
    return Policy(
        version=version,
        associations=tuple(
            Association(id=number, cluster="c", account=account, user=user, shares=shares)
            for number, (account, user, shares) in sorted(associations.items())
        ),
        qos=tuple(Qos(name=name, id=ord(name), priority=priority) for name, priority in sorted(qos.items())),
        wckeys=tuple(WcKey(cluster="c", name=name, user=user) for name, user in sorted(wckeys)),
        default_wckeys=tuple(sorted(defaults.items())),
    )


@given(policies(3), policies(7))
def test_the_policy_before_with_the_change_is_the_policy_after(before: Policy, after: Policy) -> None:
    change = change_between(before, after)
    assert amended(before, change) == after
    assert (change.base, change.version) == (3, 7)
    again = change_between(after, after)
    assert is_empty(again)
    # Of what is the same nothing is sent.
    assert not set(change.associations) & set(before.associations)
    assert not set(change.qos) & set(before.qos)
