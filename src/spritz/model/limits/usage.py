"""What was used over time, by associations along the tree and by QOS, with the half-life that makes it fade. Pure.

A job that runs adds to the usage of each of its keys at a constant rate, and whatever was used fades by half in every
half-life H, so that between two changes of what runs

    u(t) = u(s) 2^(-(t - s)/H) + rate * (1 - 2^(-(t - s)/H)) * H / ln 2      (without one: u(s) + rate * (t - s))

holds exactly. Nothing is done while time passes: a key is brought forward when one of its jobs starts or ends, and a
reader reckons the value of the moment. The cost of a start or an end is the depth of the tree.

Rates are whole numbers of millionths, so that taking one back leaves exactly what was there before, in any order.

Source: slurm.conf(5) PriorityDecayHalfLife, TRESBillingWeights, PriorityFlags=MAX_TRES; sacctmgr(1) UsageFactor,
NoDecay, RawUsage; sshare(1) RawUsage, GrpTRESRaw. Slurm decays in steps of PriorityCalcPeriod; this is the limit of
ever shorter ones.
"""

from __future__ import annotations

from math import exp, expm1, log
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.limits.records import UsageRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.model.limits.ledger import Key

#: What is kept besides the TRES by name: billing in fractions (sshare's RawUsage), and seconds of wall clock.
RAW = "raw"
WALL = "wall"
#: Parts of a rate's unit.
MICRO = 1_000_000

#: (TRES, RAW or WALL; millionths of it used in a second)
Rates = tuple[tuple[str, int], ...]
Weights = tuple[tuple[str, float], ...]


class Decay(Struct, frozen=True, kw_only=True):
    """How usage fades. `half_life_seconds` 0: not at all."""

    half_life_seconds: float = 0.0
    #: keys whose usage does not fade and is not reset: QOS with NoDecay
    lasting: frozenset[str] = frozenset()


class Entry:
    """One key: amounts at `at`, and what they grow by."""

    __slots__ = ("amounts", "at", "constant", "rates")

    def __init__(self, at: float, constant: float) -> None:
        self.at = at
        #: ln 2 / H (0.0: no decay)
        self.constant = constant
        self.amounts: dict[str, float] = {}
        self.rates: dict[str, int] = {}

    def amounts_at(self, now: float) -> dict[str, float]:
        """Amounts at a moment; a moment that is past counts as that of the last change."""
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
        """Change the rate at which it grows from now on."""
        self.advance(now)
        mine = self.rates
        for name, rate in rates:
            left = mine.get(name, 0) + sign * rate
            if left:
                mine[name] = left
            else:
                mine.pop(name, None)


def factors(constant: float, seconds: float) -> tuple[float, float]:
    """What is left of an amount after so long, and what a rate of one millionth has added."""
    if not constant:
        return 1.0, seconds / MICRO
    return exp(-constant * seconds), -expm1(-constant * seconds) / constant / MICRO


def decay_constant(half_life_seconds: float) -> float:
    """ln 2 / H; 0.0 for no half-life."""
    return log(2.0) / half_life_seconds if half_life_seconds > 0.0 else 0.0


class Usage:
    """Usage by key: ("a", association) and ("q", QOS). `decay` holds for all until it is set anew."""

    __slots__ = ("_constant", "decay", "entries")

    def __init__(self, decay: Decay | None = None) -> None:
        self.decay = decay or Decay()
        self._constant = decay_constant(self.decay.half_life_seconds)
        self.entries: dict[Key, Entry] = {}

    def change(self, keys: Iterable[Key], rates: Rates, sign: int, now: float) -> None:
        """A job begins (`sign` 1) or ceases (-1) to use this amount, under each of these keys."""
        for key in keys:
            if key[0] not in ("a", "q"):
                continue
            entry = self.entries.get(key)
            if entry is None:
                entry = self.entries[key] = Entry(now, self._constant_of(key))
            entry.change(rates, sign, now)

    def copy(self) -> Usage:
        """An independent one."""
        other = Usage(self.decay)
        for key, entry in self.entries.items():
            mine = other.entries[key] = Entry(entry.at, entry.constant)
            mine.amounts, mine.rates = dict(entry.amounts), dict(entry.rates)
        return other

    def amounts(self, key: Key, now: float) -> Mapping[str, float]:
        """TRES seconds, RAW and WALL at `now`."""
        entry = self.entries.get(key)
        return entry.amounts_at(now) if entry is not None else {}

    def amount(self, key: Key, name: str, now: float) -> float:
        """One of `amounts`."""
        entry = self.entries.get(key)
        if entry is None:
            return 0.0
        found, rate = entry.amounts.get(name, 0.0), entry.rates.get(name, 0)
        passed = now - entry.at
        if passed <= 0.0 or not (found or rate):
            return found
        kept, gained = factors(entry.constant, passed)
        return found * kept + rate * gained

    def rate(self, key: Key, name: str) -> float:
        """What is added in a second now."""
        entry = self.entries.get(key)
        return entry.rates.get(name, 0) / MICRO if entry is not None else 0.0

    def constant(self, key: Key) -> float:
        """ln 2 / H, as it is for this key."""
        return self._constant_of(key)

    # -- changes of all

    def configure(self, decay: Decay, now: float) -> None:
        """Another half-life holds from now on."""
        for entry in self.entries.values():
            entry.advance(now)
        self.decay = decay
        self._constant = decay_constant(decay.half_life_seconds)
        for key, entry in self.entries.items():
            entry.constant = self._constant_of(key)

    def _constant_of(self, key: Key) -> float:
        return 0.0 if key[0] == "q" and key[1] in self.decay.lasting else self._constant

    def reset(self, now: float, keys: Iterable[Key] | None = None) -> None:
        """What was used up to now counts no longer: that of these keys, or of all but QOS with NoDecay."""
        for key in list(self.entries if keys is None else keys):
            entry = self.entries.get(key)
            if entry is None or (keys is None and key[0] == "q" and key[1] in self.decay.lasting):
                continue
            entry.amounts, entry.at = {}, max(now, entry.at)
            if not entry.rates:
                del self.entries[key]

    def adopt(self, rows: Iterable[UsageRow], since: float, now: float) -> None:
        """These amounts at `since` stand in place of all that there are; what grows has grown since then."""
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
        """It was `then` and is `now`, which is earlier: what grows goes on from here, not when it is so late again."""
        for entry in self.entries.values():
            entry.advance(then)
            entry.at = min(entry.at, now)

    def idle(self, now: float) -> None:
        """Bring everything forward, and let nothing grow: what runs is counted anew afterwards."""
        for entry in self.entries.values():
            entry.advance(now)
            entry.rates.clear()

    def retree(self, parents: Mapping[int, int], leaves: Iterable[int], now: float) -> None:
        """The tree has changed (association -> the one above it): accounts have what the users below them have.

        Nothing grows meanwhile (`idle`).
        """
        leaves = tuple(leaves)
        sums: dict[int, dict[str, float]] = {}
        for leaf in leaves:
            entry = self.entries.get(("a", leaf))
            above = parents.get(leaf)
            while entry is not None and above is not None:
                mine = sums.setdefault(above, {})
                for name, amount in entry.amounts.items():
                    mine[name] = mine.get(name, 0.0) + amount
                above = parents.get(above)
        known = set(leaves)
        for key in [key for key in self.entries if key[0] == "a" and key[1] not in known]:
            del self.entries[key]
        for number, amounts in sums.items():
            entry = self.entries[("a", number)] = Entry(now, self._constant)
            entry.amounts = amounts

    # -- durable form

    def rows(self) -> list[UsageRow]:
        """What there is, without what grows: that is found again from the jobs that run. In the order of keys and
        names: that in which they first came up says nothing.
        """
        return [
            UsageRow(key=key, at=entry.at, amounts=dict(sorted(entry.amounts.items())))
            for key, entry in sorted(self.entries.items(), key=lambda item: str(item[0]))
            if entry.amounts or entry.rates
        ]

    def load(self, rows: Iterable[UsageRow]) -> None:
        """Inverse of `rows`, before any job is counted."""
        for row in rows:
            key = tuple(row.key)
            entry = self.entries[key] = Entry(row.at, self._constant_of(key))
            entry.amounts = dict(row.amounts)


# -- what a job uses


def billable(weights: Weights, pairs: Iterable[tuple[str, int]], largest: str = "") -> float:
    """TRESBillingWeights times TRES; without weights it is the CPUs.

    `largest`: with PriorityFlags=MAX_TRES ("node") the largest part of what nodes have, and the sum of the rest; with
    MAX_TRES_GRES ("gres") GRES belong to the rest.
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
    """What a job that holds these TRES uses in a second; `factor`: its QOS's UsageFactor."""
    parts = MICRO * factor
    return (
        (RAW, round(billing * parts)),
        (WALL, round(parts)),
        *((name, round(count * parts)) for name, count in pairs),
    )
