"""The nearest known word, for "did you mean …?".

Source: ours. Edit distance with swaps of neighbours (optimal string alignment), case-insensitive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LENGTH_MAX = 64


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that is `word` but for typing errors, or None. Ties go to the first.

    A candidate is near enough with one error in words up to four letters, two up to eight, three in longer ones, or if
    `word` begins it.
    """
    if not word or len(word) > _LENGTH_MAX:
        return None
    lowered = word.lower()
    limit = 1 if len(word) <= 4 else 2 if len(word) <= 8 else 3
    best: str | None = None
    best_distance = limit + 1
    extending: str | None = None
    for candidate in candidates:
        other = candidate.lower()
        if other == lowered:
            return candidate
        if abs(len(other) - len(lowered)) < best_distance:
            distance = _distance(lowered, other, best_distance)
            if distance < best_distance and distance < max(len(lowered), len(other)):
                best, best_distance = candidate, distance
        if extending is None and len(lowered) > 2 and other.startswith(lowered):
            extending = candidate
    return best or extending


def _distance(word: str, other: str, limit: int) -> int:
    """Number of typing errors between the two words, at most `limit`."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        earlier, before = before, row
        row = [i]
        for j, another in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != another))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == another:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
        if min(row) >= limit:
            return limit
    return min(row[-1], limit)
