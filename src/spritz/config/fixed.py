"""Keys that take effect only when a daemon starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.config.loaded import DbdSettings
    from spritz.config.settings import Settings


def need_unchanged(
    keys: Iterable[str],
    old: Settings | DbdSettings,
    new: Settings | DbdSettings,
    *,
    path: str,
    daemon: str,
) -> None:
    """Raises SpritzError that names those of `keys` that differ in the file at `path`, which `daemon` reads again."""
    changed = [key for key in keys if old[key] != new[key]]
    if changed:
        raise SpritzError(
            f"{path}: {', '.join(changed)} cannot change while {daemon} runs; the old configuration stays",
            code="ESLURM_DISABLED",
            hint=f"change it back, or restart {daemon}",
        )
