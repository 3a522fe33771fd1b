"""A run's checkpoints: found by name below its code and its directory, and removed by a policy.

Files of the same step in the same directory (shards of ranks, model and optimiser) form a checkpoint, and so does a
directory checkpoint-N. Files of the snapshot are the user's code, never checkpoints.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spritz.experiments.results.metrics import Point

_FILE = re.compile(r".+\.(?:ckpt|pt|pth|safetensors)\Z")
_DIRECTORY = re.compile(r"(?:checkpoint|global_step|step|epoch)[-_=]?(\d+)\Z|.+\.ckpt\Z")
_STEPS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (r"step[=_-]?(\d+)", r"(?:checkpoint|ckpt|iter|model)[=_-](\d+)", r"epoch[=_-]?(\d+)",
                    r"[-_.](\d+)\.\w+\Z")
)  # fmt: skip
_SHARD = re.compile(r"(?:[-_.]?rank[-_]?\d+|-\d{5}-of-\d{5})", re.IGNORECASE)
_SKIPPED = frozenset({".git", "__pycache__", "node_modules", "venv", ".venv", "log", "usage"})
#: Words in the names of metrics for which smaller values are better.
_LESS = re.compile(r"loss|err|perplexity|ppl|mse|mae|rmse|nll|wer|cer|fid|bpc", re.IGNORECASE)
_ENTRIES_MAX = 200_000


@dataclass(frozen=True)
class Checkpoint:
    """Files, or a directory, that form a checkpoint. `step`: None if the name has none."""

    paths: tuple[Path, ...]
    step: int | None
    written_at: float
    size: int
    #: whether a link points to it, such as last.ckpt
    linked: bool = False


def find(roots: Iterable[Path], *, tracked: Collection[Path] = (), since: float = 0.0) -> list[Checkpoint]:
    """Checkpoints below these directories, newest first, without `tracked` files and files older than `since`."""
    groups: dict[tuple[Path, str], list[Path]] = {}
    targets: set[Path] = set()
    seen: set[Path] = set()
    count = 0
    for root in roots:
        for place, folders, names in os.walk(root):
            folder = Path(place)
            count += len(names) + len(folders)
            if count > _ENTRIES_MAX:
                break
            for name in list(folders):
                path = folder / name
                if path.is_symlink():
                    targets.add(path.resolve())
                elif name in _SKIPPED or name.startswith((".life-", ".over-")):  # incomplete: `checkpointing`
                    folders.remove(name)
                elif _DIRECTORY.fullmatch(name) and any(path.iterdir()):
                    folders.remove(name)
                    if path not in seen and not any(path in other.parents for other in tracked):
                        groups[folder, name] = [path]
                        seen.add(path)
            for name in names:
                path = folder / name
                if not _FILE.fullmatch(name) or path in seen or path in tracked:
                    continue
                if path.is_symlink():
                    targets.add(path.resolve())
                    continue
                seen.add(path)
                step = step_of(name)
                groups.setdefault((folder, _SHARD.sub("", name) if step is None else f"\0{step}"), []).append(path)
    checkpoints = []
    for paths in groups.values():
        with suppress(OSError):  # the program has removed it meanwhile
            sizes, times = zip(*[_measure(path) for path in paths], strict=True)
            if max(times) >= since:
                linked = any(path.resolve() in targets for path in paths)
                checkpoints.append(
                    Checkpoint(tuple(sorted(paths)), step_of(paths[0].name), max(times), sum(sizes), linked)
                )
    return sorted(checkpoints, key=lambda item: (item.written_at, item.step or 0), reverse=True)


def step_of(name: str) -> int | None:
    """The step, or else the epoch, in a name; None if there is none."""
    for pattern in _STEPS:
        match = pattern.search(name)
        if match:
            return int(match[1])
    return None


def _measure(path: Path) -> tuple[int, float]:
    """(size in bytes, time of the last change) of a file or directory."""
    if not path.is_dir():
        status = path.stat()
        return status.st_size, status.st_mtime
    size, latest = 0, path.stat().st_mtime
    for place, _, names in os.walk(path):
        for name in names:
            status = os.lstat(os.path.join(place, name))
            size, latest = size + status.st_size, max(latest, status.st_mtime)
    return size, latest


def value_of(checkpoint: Checkpoint, metric: str, points: Iterable[Point]) -> float | None:
    """The metric at the checkpoint: from its name, at its step, or the last value before it was written."""
    for path in checkpoint.paths:
        match = re.search(rf"(?:^|[-.,]){re.escape(metric)}=(-?\d+(?:\.\d+)?(?:e-?\d+)?)", path.name)
        if match:
            return float(match[1])
    reports = [point for point in points if point.name == metric]
    at_step = [point.value for point in reports if checkpoint.step is not None and point.step == checkpoint.step]
    before = [point.value for point in reports if 0.0 < point.at <= checkpoint.written_at + 1.0]
    values = at_step or before
    return values[-1] if values else None


def less_is_better(metric: str) -> bool:
    """A guess from the metric's name."""
    return _LESS.search(metric) is not None


def to_prune(
    all_checkpoints: list[Checkpoint], *, keep_last: int | None, values: dict[Checkpoint, float], least: bool
) -> list[Checkpoint]:
    """The checkpoints that a policy removes. `checkpoints`: newest first; `values`: of the metric for keeping the best.

    Never removes the newest, the target of a link, or a checkpoint that is not one of a series.
    """
    kept = set(all_checkpoints[: max(1, keep_last if keep_last is not None else 1)])
    if values:
        kept.add((min if least else max)(values, key=lambda item: values[item]))
    return [item for item in all_checkpoints if item not in kept and not item.linked and item.step is not None]


def remove(checkpoint: Checkpoint) -> None:
    """Remove the checkpoint's files. Raises OSError."""
    for path in checkpoint.paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
