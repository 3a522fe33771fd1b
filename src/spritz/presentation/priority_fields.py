"""The catalogue of sprio's fields. Weighted factors are whole numbers; normalised ones have seven decimal places.

Source: sprio(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.cluster.priority import PRIORITY_MAX
from spritz.presentation.columns import Field, by_letter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.cluster.priority import PriorityWeights

#: factor -> name of its weight
_FACTORS = {
    "age": "age",
    "assoc": "assoc",
    "fairshare": "fairshare",
    "job_size": "job_size",
    "partition_factor": "partition",
    "qos_factor": "qos",
}


def _norm(header: str, factor: str, *, letter: str) -> Field:
    def render(now: float, weights: PriorityWeights, value: float | None) -> str:
        weight: int = getattr(weights, _FACTORS[factor])
        # a factor without a weight is not computed
        return str(weight) if value is None else f"{value if weight else 0:.7f}"

    return Field(header, ("weights", factor), render, sort=lambda weights, value: value, letter=letter)


def _weighted(header: str, factor: str, *, letter: str) -> Field:
    def render(now: float, weights: PriorityWeights, value: float | None) -> str:
        weight: int = getattr(weights, _FACTORS[factor])
        return str(weight if value is None else int(weight * value))

    return Field(header, ("weights", factor), render, sort=lambda weights, value: value, letter=letter)


def _tres(now: float, weights: PriorityWeights, value: Sequence[tuple[str, float]] | None) -> str:
    if value is None:
        return ",".join(f"{name}={int(weight)}" for name, weight in weights.tres) or "(null)"
    shares = dict(value)
    return ",".join(f"{name}={int(weight * shares[name])}" for name, weight in weights.tres if shares.get(name))


def _tres_shares(now: float, value: Sequence[tuple[str, float]]) -> str:
    """Without TRES that the job does not request, as in `_tres`."""
    return ",".join(f"{name}={share:.2f}" for name, share in value if share)


def _number(now: float, value: int) -> str:
    return str(value)


#: every field, by its letter of `-o`
FIELDS: tuple[Field, ...] = (
    _norm("AGE", "age", letter="a"),
    _weighted("AGE", "age", letter="A"),
    _norm("ASSOC", "assoc", letter="b"),
    _weighted("ASSOC", "assoc", letter="B"),
    Field("CLUSTER", ("cluster",), letter="c"),
    _norm("FAIRSHARE", "fairshare", letter="f"),
    _weighted("FAIRSHARE", "fairshare", letter="F"),
    Field("JOBID", ("job_id",), sort=lambda value: value, letter="i"),
    _norm("JOBSIZE", "job_size", letter="j"),
    _weighted("JOBSIZE", "job_size", letter="J"),
    Field("QOSNAME", ("qos",), letter="n"),
    Field("NICE", ("nice",), sort=lambda value: value, letter="N"),
    Field("ACCOUNT", ("account",), letter="o"),
    _norm("PARTITION", "partition_factor", letter="p"),
    _weighted("PARTITION", "partition_factor", letter="P"),
    _norm("QOS", "qos_factor", letter="q"),
    _weighted("QOS", "qos_factor", letter="Q"),
    Field("PARTITION", ("partition",), letter="r"),
    Field("SITE", ("site",), _number, sort=lambda value: value, letter="S"),
    Field("TRES", ("tres",), _tres_shares, letter="t"),
    Field("TRES", ("weights", "tres"), _tres, letter="T"),
    Field("USER", ("user",), letter="u"),
    Field("PRIORITY", ("priority",), lambda now, value: f"{value / PRIORITY_MAX:.14f}", letter="y"),
    Field("PRIORITY", ("priority",), _number, sort=lambda value: value, letter="Y"),
)

LETTERS = by_letter(FIELDS)
