"""The records of one policy by name, and how an edit changes them. `limits.rules` answers questions from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.bounds import MinuteLimits, qos_bounds
from spritz.model.limits.flags import RELATIVE
from spritz.model.limits.records import Association, Policy, PolicyChange, Qos
from spritz.notation.tres import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spritz.model.limits.ledger import LedgerKey


class Touched:
    """The records that an edit has touched: associations of these users (by account), all in these accounts, these QOS.
    Jobs of `counted` and `counted_qos` may count towards other keys than before.
    """

    __slots__ = ("accounts", "counted", "counted_qos", "ids", "qos", "users")

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.users: set[tuple[str, str]] = set()
        self.accounts: set[str] = set()
        self.qos: set[str] = set()
        self.counted: set[tuple[str, str]] = set()
        self.counted_qos: set[str] = set()

    def has(self, account: str, user: str) -> bool:
        """Whether the bounds of this user of the account have changed."""
        return (account, user) in self.users or account in self.accounts

    def recounts(self, account: str, user: str, qos: str) -> bool:
        """Whether such a job may count towards other keys than before."""
        return (account, user) in self.counted or qos in self.counted_qos


class Catalogue:
    """Records by name. `timing`, `foreseeing`, `accruing` and `sharing`: records with limits of these kinds."""

    def __init__(self, policy: Policy) -> None:
        self.version = policy.version
        self._policy: Policy | None = policy
        self._records = {association.id: association for association in policy.associations}
        self.qos = {qos_record.name: qos_bounds(qos_record) for qos_record in policy.qos}
        self.wckeys = {(wckey.user, wckey.name): wckey for wckey in policy.wckeys}
        self.default_wckeys = dict(policy.default_wckeys)
        self.licenses = policy.licenses
        self.admins = dict(policy.admins)
        self.coordinators = policy.coordinators
        self.federation = policy.federation
        self._coordinated: dict[str, frozenset[str]] = {}
        self.accounts = {
            association.account: association for association in policy.associations if not association.user
        }
        self.users = {
            (association.account, association.user, association.partition): association
            for association in policy.associations
            if association.user
        }
        #: user -> default account
        self.defaults = {
            association.user: association.account
            for association in policy.associations
            if association.user and association.is_default
        }
        self._below: dict[str, set[str]] = {}
        for record in self.accounts.values():
            self._below.setdefault(record.parent, set()).add(record.account)
        self.timing: set[int | str] = set()
        self.foreseeing: set[int | str] = set()
        self.accruing: set[int | str] = set()
        self.sharing: set[int | str] = set()
        for record in policy.associations:
            self._sort(record)
        for qos in policy.qos:
            self._sort(qos)

    @property
    def policy(self) -> Policy:
        """The whole policy, in slurmdbd's order."""
        if self._policy is None:
            self._policy = Policy(
                version=self.version,
                associations=tuple(self._records[number] for number in sorted(self._records)),
                qos=tuple(
                    sorted((qos_record.record for qos_record in self.qos.values()), key=lambda record: record.id)
                ),
                wckeys=tuple(sorted(self.wckeys.values(), key=lambda wckey: (wckey.name, wckey.user))),
                default_wckeys=tuple(sorted(self.default_wckeys.items())),
                licenses=self.licenses,
                admins=tuple(sorted(self.admins.items())),
                coordinators=self.coordinators,
                federation=self.federation,
            )
        return self._policy

    def parents(self) -> dict[int, int]:
        """Association id -> id of its parent; root's children have none."""
        parents: dict[int, int] = {}
        for record in self._records.values():
            above = self.accounts.get(record.account if record.user else record.parent)
            if above is not None and above.id != record.id:
                parents[record.id] = above.id
        return parents

    def users_among(self, numbers: Iterable[int]) -> list[Association]:
        """Associations of users with these ids."""
        records = (self._records.get(number) for number in numbers)
        return [record for record in records if record is not None and record.user]

    def coordinated(self, user: str) -> frozenset[str]:
        """Accounts whose jobs the user may change: those that the user coordinates, and the accounts below."""
        accounts = self._coordinated.get(user)
        if accounts is None:
            direct = (account for name, account in self.coordinators if name == user)
            accounts = frozenset[str]().union(*map(self._with_those_below, direct))
            self._coordinated[user] = accounts
        return accounts

    def every_key(self) -> Iterator[LedgerKey]:
        """Keys of all QOS and associations."""
        yield from (("q", name) for name in self.qos)
        yield from (("a", number) for number in self._records)

    def minute_limits(self, key: LedgerKey) -> MinuteLimits | None:
        """The limits on minutes of a QOS or an association; None if it has none."""
        if key[0] == "q":
            qos = self.qos.get(str(key[1]))
            if qos is None or not (qos.grp_mins or qos.record.grp_wall is not None):
                return None
            return MinuteLimits(key=key, qos=True, used=qos.grp_mins, wall=qos.record.grp_wall)
        record = self._records.get(int(key[1]))
        if record is None or not (record.grp_tres_mins or record.grp_wall is not None):
            return None
        if not record.user and not record.parent:
            return None
        return MinuteLimits(key=key, qos=False, used=parse(record.grp_tres_mins), wall=record.grp_wall)

    def can_amend(self, change: PolicyChange) -> bool:
        """Whether the edit touches only some associations and QOS. It does not if it moves or deletes accounts, deletes
        QOS, or changes how jobs count.
        """
        for number in change.gone_associations:
            old = self._records.get(number)
            if old is not None and not old.user:
                return False
        for association in change.associations:
            old = self._records.get(association.id)
            if old is not None and _home(old) != _home(association):
                return False
            if self._begins(association):
                return False
        for qos in change.qos:
            known_qos = self.qos.get(qos.name)
            before = known_qos.record if known_qos is not None else Qos(name=qos.name)
            if (before.flags, before.usage_factor) != (qos.flags, qos.usage_factor):
                return False
            if self._begins(qos):
                return False
            if RELATIVE in qos.flags:
                return False
        return not change.gone_qos and self.version == change.base

    def inverse(self, change: PolicyChange) -> PolicyChange:
        """The edit that takes `change`, which is not applied yet, back."""
        numbers = dict.fromkeys([*(record.id for record in change.associations), *change.gone_associations])
        names = dict.fromkeys([*(record.name for record in change.qos), *change.gone_qos])
        wckeys = dict.fromkeys([*((record.user, record.name) for record in change.wckeys)])
        wckeys.update(((user, name), None) for name, user in map(tuple, change.gone_wckeys))
        return PolicyChange(
            base=change.version,
            version=change.base,
            associations=tuple(self._records[number] for number in numbers if number in self._records),
            gone_associations=tuple(number for number in numbers if number not in self._records),
            qos=tuple(self.qos[name].record for name in names if name in self.qos),
            gone_qos=tuple(name for name in names if name not in self.qos),
            wckeys=tuple(self.wckeys[key] for key in wckeys if key in self.wckeys),
            gone_wckeys=tuple((name, user) for user, name in wckeys if (user, name) not in self.wckeys),
            default_wckeys=tuple((user, self.default_wckeys.get(user, "")) for user, _name in change.default_wckeys),
            licenses=self.licenses,
            admins=tuple(sorted(self.admins.items())),
            coordinators=self.coordinators,
            federation=self.federation,
        )

    def _begins(self, record: Association | Qos) -> bool:
        """Whether the record needs a fact about running jobs that was not counted so far."""
        return (not self.foreseeing and _foresees(record)) or (not self.sharing and _shares(record))

    def amend(self, change: PolicyChange) -> Touched:
        """Apply an edit for which `can_amend` is true. Returns what it changed, so that indexes follow."""
        touched = Touched()
        self.version, self._policy = change.version, None
        for number in change.gone_associations:
            old = self._records.pop(number, None)
            if old is not None:
                touched.ids.add(number)
                touched.counted.add((old.account, old.user))
                self._forget(old)
                if old.is_default and old.user not in self.defaults:
                    others = (
                        candidate
                        for candidate in self.users.values()
                        if candidate.user == old.user and candidate.is_default
                    )
                    self.defaults.update((other.user, other.account) for other in others)
        for association in change.associations:
            old = self._records.get(association.id)
            if old is None:
                touched.counted.add((association.account, association.user))
            else:
                self._forget(old)
        for association in change.associations:
            touched.ids.add(association.id)
            self._learn(association)
            if not association.user:
                touched.accounts |= self._with_those_below(association.account)
            touched.users.add((association.account, association.user))
        touched.users |= touched.counted
        for qos in change.qos:
            if qos.name not in self.qos:
                touched.counted_qos.add(qos.name)
            self.qos[qos.name] = qos_bounds(qos)
            self._sort(qos)
            touched.qos.add(qos.name)
        for name, user in map(tuple, change.gone_wckeys):
            self.wckeys.pop((user, name), None)
        self.wckeys.update(((wckey.user, wckey.name), wckey) for wckey in change.wckeys)
        if change.licenses is not None:
            self.licenses = change.licenses
        if change.admins is not None:
            self.admins = dict(change.admins)
        if change.coordinators is not None:
            self.coordinators = change.coordinators
        if change.federation is not None:
            self.federation = change.federation
        self._coordinated.clear()
        for user, name in change.default_wckeys:
            self.default_wckeys[user] = name
            if not name:
                del self.default_wckeys[user]
        return touched

    def _sort(self, record: Association | Qos) -> None:
        """Note which kinds of limits the record has."""
        name = record.name if isinstance(record, Qos) else record.id
        kinds = (
            (self.timing, _times),
            (self.foreseeing, _foresees),
            (self.accruing, _accrues),
            (self.sharing, _shares),
        )
        for members, has in kinds:
            if has(record):
                members.add(name)
            else:
                members.discard(name)

    def _forget(self, old: Association) -> None:
        for members in (self.timing, self.foreseeing, self.accruing, self.sharing):
            members.discard(old.id)
        if old.user:
            self.users.pop((old.account, old.user, old.partition), None)
            if old.is_default and self.defaults.get(old.user) == old.account:
                del self.defaults[old.user]

    def _learn(self, association: Association) -> None:
        self._records[association.id] = association
        self._sort(association)
        if association.user:
            self.users[association.account, association.user, association.partition] = association
            if association.is_default:
                self.defaults[association.user] = association.account
        else:
            self.accounts[association.account] = association
            self._below.setdefault(association.parent, set()).add(association.account)

    def _with_those_below(self, account: str) -> set[str]:
        accounts: set[str] = set()
        left = [account]
        while left:
            name = left.pop()
            if name not in accounts:
                accounts.add(name)
                left += self._below.get(name, ())
        return accounts


def _home(association: Association) -> tuple[str, str, str, str]:
    return association.account, association.user, association.partition, association.parent


def _times(record: Association | Qos) -> bool:
    """Whether the record limits the minutes of a single job."""
    return bool(record.max_tres_mins_pj if isinstance(record, Qos) else record.max_tres_mins)


def _foresees(record: Association | Qos) -> bool:
    """Whether the record limits usage, or minutes that running jobs may still use."""
    if record.grp_tres_mins or record.grp_tres_run_mins or record.grp_wall is not None:
        return True
    return isinstance(record, Qos) and bool(record.max_tres_run_mins_pu or record.max_tres_run_mins_pa)


def _accrues(record: Association | Qos) -> bool:
    """Whether the record limits how many pending jobs accrue age priority."""
    most = (
        (record.max_jobs_accrue_pu, record.max_jobs_accrue_pa) if isinstance(record, Qos) else (record.max_jobs_accrue,)
    )
    return record.grp_jobs_accrue is not None or any(limit is not None for limit in most)


def _shares(record: Association | Qos) -> bool:
    """Whether the record limits the nodes of several jobs together, which may share nodes."""
    texts = (record.grp_tres, record.max_tres_pu, record.max_tres_pa) if isinstance(record, Qos) else (record.grp_tres,)
    return any(name == "node" for text in texts if text for name, _ in parse(text))
