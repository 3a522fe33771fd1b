"""Remove from the home directory what no run, sweep or pipeline refers to any more.

Snapshots of code, restored environments, scripts of job arrays and cached values of pipelines are shared, so they stay
when a run that used them is removed. What is younger than an hour stays too: a submission may be about to refer to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from spritz.experiments.code import cleaning, restoring
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import file_time
from spritz.experiments.records.store import Store


def remove(store: Store) -> None:
    """Remove it. Raises ExperimentError and OSError; what is left is tried again the next time."""
    home, now = store.home, file_time(store.home)
    before = now - cleaning.YOUNG_SECONDS
    directories = list(home.glob("runs/*"))
    arrays = {directory.name.rpartition("-")[0] for directory in directories}
    # NAME-FIRST.sh and .shared, for runs NAME-0, NAME-1 …
    _unlink((path for path in home.glob("arrays/*") if re.sub(r"-\d+\.\w+\Z", "", path.name) not in arrays), before)
    digests = {_read(path).get("digest") for path in home.glob("pipelines/*/values/*/*.json")}
    for path in [path for path in home.glob("values/*.json") if _read(path).get("digest") not in digests]:
        _unlink([path.with_suffix(".pkl"), path], before)
    restoring.remove_unused(home, directories, before)
    rows = store.trees()
    # Runs that are not in the index, as after it was lost, tell their code themselves.
    records = [directory / "run.json" for directory in directories if directory.name not in rows]
    records += [
        *home.glob("sweeps/*/shared.json"),
        *home.glob("sweeps/*/code-*/shared.json"),
        *home.glob("arrays/*.shared"),
        *home.glob("pipelines/*/pipeline*.json"),
    ]
    trees = {*rows.values(), *((_read(path).get("code") or {}).get("tree", "") for path in records)}
    cleaning.remove_all_but(trees, home / "snapshots.git", now)


def _unlink(paths: Iterable[Path], before: float) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                path.unlink()


def _read(path: Path) -> dict[str, Any]:
    """The file's mapping; empty if it is gone. Raises ExperimentError for a damaged file: what it uses is not known."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ExperimentError(f"{path} is damaged", hint="repair it or move it away, then remove another run")
    return content
