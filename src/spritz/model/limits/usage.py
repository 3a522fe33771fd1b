"""Usage over time, by associations along the tree and by QOS, with decay by a half-life. Pure.

A running job adds to the usage of each of its keys at a constant rate, and usage decays by half in every half-life H.
Between two changes of the set of running jobs therefore

    u(t) = u(s) 2^(-(t - s)/H) + rate * (1 - 2^(-(t - s)/H)) * H / ln 2      (without decay: u(s) + rate * (t - s))

holds exactly. Nothing is computed while time passes: a key is brought forward when one of its jobs starts or ends, and
a reader computes the present value. The cost of a start or an end is the depth of the tree.

Rates are whole numbers of millionths, so that subtracting one leaves exactly what was there before, in any order.

Source: slurm.conf(5) PriorityDecayHalfLife, TRESBillingWeights, PriorityFlags=MAX_TRES; sacctmgr(1) UsageFactor,
NoDecay, RawUsage; sshare(1) RawUsage, GrpTRESRaw. Slurm decays in steps of PriorityCalcPeriod; this is the limit for
ever shorter steps.
"""

from __future__ import annotations

from math import exp, expm1, log
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.limits.records import UsageRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.model.limits.ledger import LedgerKey

#: Amounts kept in addition to TRES by name: fractional billing (sshare's RawUsage), and seconds of wall clock.
RAW = "raw"
WALL = "wall"
#: rates are counted in millionths
MICRO = 1_000_000

#: (TRES, RAW or WALL; millionths of it per second)
Rates = tuple[tuple[str, int], ...]
Weights = tuple[tuple[str, float], ...]


class Decay(Struct, frozen=True, kw_only=True):
    """How usage decays. `half_life_seconds` 0: not at all."""

    half_life_seconds: float = 0.0
    #: keys whose usage neither decays nor is reset: QOS with NoDecay
    lasting: frozenset[str] = frozenset()


class Entry:
    """One key: amounts at `at`, and the rates at which they grow."""

    __slots__ = ("amounts", "at", "constant", "rates")

    def __init__(self, at: float, constant: float) -> None:
        self.at = at
        #: ln 2 / H (0.0: no decay)
        self.constant = constant
        self.amounts: dict[str, float] = {}
        self.rates: dict[str, int] = {}

    def copy(self) -> Entry:
        other = Entry(self.at, self.constant)
        other.amounts, other.rates = self.amounts.copy(), self.rates.copy()
        return other

    def amounts_at(self, now: float) -> dict[str, float]:
        """Amounts at time `now`; for a past time, those of the last change."""
        passed = now - self.at
        if passed <= 0.0:
            return dict(self.amounts)
        kept, gained = factors(self.constant, passed)
        amounts = {name: amount * kept for name, amount in self.amounts.items()}
        for name, rate in self.rates.items():
            amounts[name] = amounts.get(name, 0.0) + rate * gained
        return amounts

    def advance(self, now: float) -> None:
        """Bring the amounts forward: `amounts_at`, in place."""
        passed = now - self.at
        if passed <= 0.0:
            return
        self.at = now
        kept, gained = factors(self.constant, passed)
        amounts = self.amounts
        if kept != 1.0:
            for name in amounts:
                amounts[name] *= kept
        for name, rate in self.rates.items():
            amounts[name] = amounts.get(name, 0.0) + rate * gained

    def change(self, rates: Rates, sign: int, now: float) -> None:
        """Change its rates from now on."""
        self.advance(now)
        own_rates = self.rates
        for name, rate in rates:
            total = own_rates.get(name, 0) + sign * rate
            if total:
                own_rates[name] = total
            else:
                own_rates.pop(name, None)


def factors(constant: float, seconds: float) -> tuple[float, float]:
    """The part of an amount that is left after `seconds`, and what a rate of one millionth has added."""
    if not constant:
        return 1.0, seconds / MICRO
    return exp(-constant * seconds), -expm1(-constant * seconds) / constant / MICRO


def decay_constant(half_life_seconds: float) -> float:
    """ln 2 / H; 0.0 without a half-life."""
    return log(2.0) / half_life_seconds if half_life_seconds > 0.0 else 0.0


class Usage:
    """Usage by key: ("a", association) and ("q", QOS). `decay` applies to all keys until `configure`."""

    __slots__ = ("_constant", "decay", "entries")

    def __init__(self, decay: Decay | None = None) -> None:
        self.decay = decay or Decay()
        self._constant = decay_constant(self.decay.half_life_seconds)
        self.entries: dict[LedgerKey, Entry] = {}

    def change(self, keys: Iterable[LedgerKey], rates: Rates, sign: int, now: float) -> None:
        """A job begins (`sign` 1) or ceases (-1) to use these amounts, under each of the keys."""
        for key in keys:
            if key[0] not in ("a", "q"):
                continue
            entry = self.entries.get(key)
            if entry is None:
                entry = self.entries[key] = Entry(now, self._constant_of(key))
            entry.change(rates, sign, now)

    def copy(self) -> Usage:
        other = Usage(self.decay)
        other.entries = {key: entry.copy() for key, entry in self.entries.items()}
        return other

    def become(self, other: Usage) -> None:
        """Take the place of `other`, which is used no more."""
        self.decay, self._constant, self.entries = other.decay, other._constant, other.entries

    def put_back(self, key: LedgerKey, entry: Entry | None) -> None:
        """Set one key to a copy of its entry that was made before (None: it had none)."""
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry

    def amounts(self, key: LedgerKey, now: float) -> Mapping[str, float]:
        """TRES seconds, RAW and WALL at `now`."""
        entry = self.entries.get(key)
        return entry.amounts_at(now) if entry is not None else {}

    def amount(self, key: LedgerKey, name: str, now: float) -> float:
        """One entry of `amounts`, as it is at `now`."""
        entry = self.entries.get(key)
        if entry is None:
            return 0.0
        amount, rate = entry.amounts.get(name, 0.0), entry.rates.get(name, 0)
        passed = now - entry.at
        if passed <= 0.0 or not (amount or rate):
            return amount
        kept, gained = factors(entry.constant, passed)
        return amount * kept + rate * gained

    def rate(self, key: LedgerKey, name: str) -> float:
        """Usage that running jobs add per second; 0.0 for an unknown key."""
        entry = self.entries.get(key)
        return entry.rates.get(name, 0) / MICRO if entry is not None else 0.0

    def constant(self, key: LedgerKey) -> float:
        """ln 2 / H for this key."""
        return self._constant_of(key)

    # -- changes of all

    def configure(self, decay: Decay, now: float) -> None:
        """Use another half-life from now on."""
        for entry in self.entries.values():
            entry.advance(now)
        self.decay = decay
        self._constant = decay_constant(decay.half_life_seconds)
        for key, entry in self.entries.items():
            entry.constant = self._constant_of(key)

    def _constant_of(self, key: LedgerKey) -> float:
        return 0.0 if key[0] == "q" and key[1] in self.decay.lasting else self._constant

    def reset(self, now: float, keys: Iterable[LedgerKey] | None = None) -> None:
        """Forget usage up to now, of these keys, or of all but QOS with NoDecay."""
        for key in list(self.entries if keys is None else keys):
            entry = self.entries.get(key)
            if entry is None or (keys is None and key[0] == "q" and key[1] in self.decay.lasting):
                continue
            entry.amounts, entry.at = {}, max(now, entry.at)
            if not entry.rates:
                del self.entries[key]

    def adopt(self, rows: Iterable[UsageRow], since: float, now: float) -> None:
        """Replace all usage at `since` by these amounts; what running jobs have added since then is kept."""
        for entry in self.entries.values():
            entry.amounts, entry.at = {}, since
        for row in rows:
            key = tuple(row.key)
            if key not in self.entries:
                self.entries[key] = Entry(since, self._constant_of(key))
            self.entries[key].amounts = dict(row.amounts)
        for entry in self.entries.values():
            entry.advance(now)

    def set_back(self, then: float, now: float) -> None:
        """The clock was set back from `then` to `now`: growth continues from now on."""
        for entry in self.entries.values():
            entry.advance(then)
            entry.at = min(entry.at, now)

    def idle(self, now: float) -> None:
        """Bring all keys forward and set all rates to 0; the running jobs are counted again afterwards."""
        for entry in self.entries.values():
            entry.advance(now)
            entry.rates.clear()

    def retree(self, parents: Mapping[int, int], leaves: Iterable[int], now: float) -> None:
        """The tree has changed (association -> its parent): give accounts the sums of the users below them. All rates
        must be 0 (`idle`).
        """
        leaves = tuple(leaves)
        sums: dict[int, dict[str, float]] = {}
        for leaf in leaves:
            entry = self.entries.get(("a", leaf))
            above = parents.get(leaf)
            while entry is not None and above is not None:
                sums_above = sums.setdefault(above, {})
                for name, amount in entry.amounts.items():
                    sums_above[name] = sums_above.get(name, 0.0) + amount
                above = parents.get(above)
        leaf_ids = set(leaves)
        for key in [key for key in self.entries if key[0] == "a" and key[1] not in leaf_ids]:
            del self.entries[key]
        for number, amounts in sums.items():
            entry = self.entries[("a", number)] = Entry(now, self._constant)
            entry.amounts = amounts

    # -- durable form

    def rows(self) -> list[UsageRow]:
        """All amounts, without rates, which follow from the running jobs. In the order of keys and names, so that equal
        states give equal rows.
        """
        return [
            UsageRow(key=key, at=entry.at, amounts=dict(sorted(entry.amounts.items())))
            for key, entry in sorted(self.entries.items(), key=lambda item: str(item[0]))
            if entry.amounts or entry.rates
        ]

    def load(self, rows: Iterable[UsageRow]) -> None:
        """Inverse of `rows`. Call it before any job is counted."""
        for row in rows:
            key = tuple(row.key)
            entry = self.entries[key] = Entry(row.at, self._constant_of(key))
            entry.amounts = dict(row.amounts)


# -- what a job uses


def billable(weights: Weights, pairs: Iterable[tuple[str, int]], largest: str = "") -> float:
    """TRESBillingWeights times TRES; without weights the CPUs.

    `largest`: with PriorityFlags=MAX_TRES ("node") the largest part among TRES of nodes, plus the sum of the others;
    with MAX_TRES_GRES ("gres") GRES belong to the others.
    """
    counts = dict(pairs)
    if not weights:
        return float(counts.get("cpu", 0))
    parts = [(name, weight * counts.get(name, 0)) for name, weight in weights]
    if not largest:
        return sum(part for _name, part in parts)
    alike = [_on_nodes(name, gres=largest == "node") for name, _part in parts]
    most = max((part for (_name, part), on in zip(parts, alike, strict=True) if on), default=0.0)
    return max(most, 0.0) + sum(part for (_name, part), on in zip(parts, alike, strict=True) if not on)


def _on_nodes(name: str, *, gres: bool) -> bool:
    return name in ("cpu", "mem", "node") or (gres and name.startswith("gres/"))


def rates_of(pairs: Iterable[tuple[str, int]], billing: float, factor: float) -> Rates:
    """The usage per second of a job with these TRES. `factor`: UsageFactor of its QOS."""
    parts = MICRO * factor
    return (
        (RAW, round(billing * parts)),
        (WALL, round(parts)),
        *((name, round(count * parts)) for name, count in pairs),
    )
