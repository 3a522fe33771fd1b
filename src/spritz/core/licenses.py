"""Licenses in the state: which of a job's choices it gets when it starts. They become free when the job ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.rules.licenses import NOTHING, LicensePool, stock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.core.state import State

Needs = tuple[tuple[str, int], ...]


def choose(
    state: State,
    text: str,
    returned: Mapping[str, int] = NOTHING,
    kept: Mapping[str, int] = NOTHING,
    wanted: Needs = (),
) -> Needs | None:
    """The first choice that is free now, or would be once `returned` are given back; None if none is.

    `kept`: licenses kept for other jobs. `wanted`: accept only this choice.
    """
    pool = LicensePool(stock(state.settings.licenses, state.rules.licenses).items())
    pool.take(state.licenses_taken)
    pool.take({name: -count for name, count in returned.items()})
    choice = pool.choose(text, kept, dict(wanted) if wanted else None)
    return None if choice is None else tuple(choice.items())
