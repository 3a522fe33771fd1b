"""The difference between two policies, and a policy with a difference applied. Pure.

`amended(before, change_between(before, after))` equals `after`, whatever the order of its records was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.model.limits.records import Policy, PolicyChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def _association(record: Any) -> Any:
    return record.id


def _qos(record: Any) -> Any:
    return record.name


def _wckey(record: Any) -> Any:
    return (record.name, record.user)


def _differing(old: Iterable[Any], new: Iterable[Any], key: Callable[[Any], Any]) -> tuple[tuple[Any, ...], set[Any]]:
    before = {key(record): record for record in old}
    put = tuple(record for record in new if before.pop(key(record), None) != record)
    # Records of `before` that are left were not in `new`.
    return put, set(before)


def change_between(before: Policy, after: Policy) -> PolicyChange:
    """The change that leads from `before` to `after`."""
    associations, gone = _differing(before.associations, after.associations, _association)
    qos, gone_qos = _differing(before.qos, after.qos, _qos)
    wckeys, gone_wckeys = _differing(before.wckeys, after.wckeys, _wckey)
    old, new = dict(before.default_wckeys), dict(after.default_wckeys)
    defaults = tuple(
        (user, new.get(user, "")) for user in sorted(old.keys() | new.keys()) if old.get(user) != new.get(user)
    )
    return PolicyChange(
        base=before.version,
        version=after.version,
        associations=associations,
        qos=qos,
        wckeys=wckeys,
        default_wckeys=defaults,
        gone_associations=tuple(sorted(gone)),
        gone_qos=tuple(sorted(gone_qos)),
        gone_wckeys=tuple(sorted(gone_wckeys)),
        licenses=None if before.licenses == after.licenses else after.licenses,
        admins=None if before.admins == after.admins else after.admins,
        coordinators=None if before.coordinators == after.coordinators else after.coordinators,
        federation=None if before.federation == after.federation else after.federation,
    )


def is_empty(change: PolicyChange) -> bool:
    """Whether the change changes nothing but the version."""
    return change == PolicyChange(base=change.base, version=change.version)


def amended(policy: Policy, change: PolicyChange) -> Policy:
    """The policy after the change, in slurmdbd's order: associations and QOS by id, other records by name."""

    def after(old: Iterable[Any], new: Iterable[Any], gone: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, Any]:
        records = {key(record): record for record in old}
        for name in gone:
            records.pop(name, None)
        records.update((key(record), record) for record in new)
        return records

    associations = after(policy.associations, change.associations, change.gone_associations, _association)
    qos = after(policy.qos, change.qos, change.gone_qos, _qos)
    wckeys = after(policy.wckeys, change.wckeys, map(tuple, change.gone_wckeys), _wckey)
    defaults = {**dict(policy.default_wckeys), **dict(change.default_wckeys)}
    return Policy(
        version=change.version,
        associations=tuple(associations[number] for number in sorted(associations)),
        qos=tuple(sorted(qos.values(), key=lambda record: record.id)),
        wckeys=tuple(wckeys[name] for name in sorted(wckeys)),
        default_wckeys=tuple((user, defaults[user]) for user in sorted(defaults) if defaults[user]),
        licenses=policy.licenses if change.licenses is None else change.licenses,
        admins=policy.admins if change.admins is None else change.admins,
        coordinators=policy.coordinators if change.coordinators is None else change.coordinators,
        federation=policy.federation if change.federation is None else change.federation,
    )
