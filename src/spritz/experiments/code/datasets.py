"""Data that a run reads, as `--data` names it: `NAME@VERSION`, or a path whose state becomes its version.

A run sees a path below its project by a link. Nothing keeps a program from writing through that link: what changes is
noticed at the end of the run, by `spritz rerun` and by `spritz diff`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from spritz.experiments.code import data_states
from spritz.experiments.errors import ExperimentError


def paths(directory: Path, words: Sequence[str]) -> list[str]:
    """The words that are paths. Raises ExperimentError for one that is none, and no NAME@VERSION or address."""
    chosen = []
    for word in words:
        if "@" in word:
            continue
        if os.path.exists(data_states.path_of(str(directory), word)):
            chosen.append(word)
        elif "://" not in word:
            raise ExperimentError(f"--data {word}: no such file or directory", hint="NAME@VERSION is recorded as it is")
    return chosen


def versions(directory: Path, words: Sequence[str]) -> list[str]:
    """The words, with the versions of those that are paths. Raises ExperimentError."""
    chosen = paths(directory, words)
    places = {word: data_states.path_of(str(directory), word) for word in chosen}
    return [f"{word}@{data_states.state(places[word])}" if word in places else word for word in words]


def changed(directory: Path, recorded: Sequence[str]) -> list[str]:
    """Paths of recorded versions whose state is another now."""
    return list(data_states.changed(str(directory), recorded))
