"""Values of earlier steps, by the content from which they were computed.

The key is over the function's source or the command, its arguments, the digests of the values that it uses, the files
that it names (or the whole snapshot), and the environment and setup lines that it asks for.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import pickle
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spritz.experiments import calling
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.pipelines.definition import StepRecord, references
from spritz.experiments.pipelines.state import Pipeline, Unit

#: A longer list has a single digest for all its items.
_ITEMS_MAX = 100_000


def about(value: Any, data: bytes) -> dict[str, Any]:
    """The description of a value, so that it need not be read again."""
    known: dict[str, Any] = {"digest": hashlib.sha256(data).hexdigest(), "length": None, "items": None}
    if isinstance(value, list | tuple):
        known["length"] = len(value)
        if len(value) <= _ITEMS_MAX:
            known["items"] = [hashlib.sha256(pickled(item, "an item")).hexdigest() for item in value]
    return known


def key(pipeline: Pipeline, step: StepRecord, unit: Unit) -> str:
    """The cache key of a unit whose sources all have values; "" if it must not be cached."""
    if not step.cache or step.name not in pipeline.files:
        return ""
    used: dict[str, Any] = {}
    for source in dict.fromkeys([*references(step.arguments), *references(step.named)]):
        units = pipeline.units(source)
        known = [pipeline.about(source, unit) for unit in units] if units is not None else [None]
        if None in known:
            return ""
        used[source] = [about["digest"] for about in known if about]
    text = json.dumps(
        [
            step.function, step.source, step.arguments, step.named, used, _item(pipeline, step, unit),
            pipeline.files[step.name], step.options.get("env"), step.options.get("setup"),
        ],
        sort_keys=True,
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest()


def _item(pipeline: Pipeline, step: StepRecord, unit: Unit) -> Any:
    if unit is None:
        return None
    if isinstance(step.over, list):
        return step.over[unit]
    source = step.over["$step"]
    if pipeline.definition.step(source).over is not None:
        known = pipeline.about(source, unit)
        return known and known["digest"]
    known = pipeline.about(source, None) or {}
    return known["items"][unit] if known.get("items") else [known.get("digest"), unit]


def take(pipeline: Pipeline, step: StepRecord, unit: Unit) -> bool:
    """Give the unit its cached value. Returns whether there is one."""
    name = key(pipeline, step, unit)
    if not name:
        return False
    folder = pipeline.directory.parent.parent / "values"
    try:
        known = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        data = (folder / f"{name}.pkl").read_bytes()
    except (OSError, ValueError):
        return False
    if hashlib.sha256(data).hexdigest() != known["digest"]:
        return False
    pipeline.put(step.name, unit, data, {**known, "cached": True})
    return True


def keep(pipeline: Pipeline, step: StepRecord, unit: Unit, data: bytes, known: dict[str, Any]) -> None:
    """Store a value for later pipelines. A failure is ignored, because the cache only saves time."""
    name = key(pipeline, step, unit)
    if not name:
        return
    folder = pipeline.directory.parent.parent / "values"
    folder.mkdir(exist_ok=True)
    calling.write_whole(folder / f"{name}.pkl", data)
    calling.write_whole(folder / f"{name}.json", json.dumps(known).encode())


def file_digests(code: Snapshot, repository: Path, steps: Sequence[StepRecord]) -> dict[str, str]:
    """Step -> digest of the files that it names, or of the whole tree. Raises ExperimentError for a name of none."""
    listed: list[tuple[str, str]] = []
    if any(step.files for step in steps):
        where = code.tree if code.directory == "." else f"{code.tree}:{code.directory}"
        done = subprocess.run(
            ["git", "--git-dir", str(repository), "ls-tree", "-r", "-z", where], capture_output=True, check=True
        )
        for line in done.stdout.decode("utf-8", "surrogateescape").split("\0"):
            meta, _, path = line.partition("\t")
            if path:
                listed.append((path, meta))
    digests = {}
    for step in steps:
        if not step.files:
            digests[step.name] = f"{code.tree} {code.directory}"
            continue
        lines = []
        for pattern in step.files:
            clean = pattern.removeprefix("./").rstrip("/")
            matched = [
                f"{meta} {path}"
                for path, meta in listed
                if fnmatch.fnmatchcase(path, clean) or path.startswith(f"{clean}/")
            ]
            if not matched:
                raise ExperimentError(f"step {step.name}: files: {pattern}: no such file in the snapshot of the code")
            lines += matched
        digests[step.name] = hashlib.sha256(
            "\n".join(sorted(set(lines))).encode("utf-8", "surrogateescape")
        ).hexdigest()
    return digests


def pickled(value: Any, what: str) -> bytes:
    """Pickle a value: by the standard pickle if possible (equal bytes for equal values), else by cloudpickle."""
    try:
        return pickle.dumps(value, protocol=4)
    except Exception:
        return calling.dumps(value, what)
