"""A run as a section of Markdown: for a paper's appendix, a pull request or a bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from spritz.experiments.code import interpreters
from spritz.experiments.interface import clock
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Entry

#: Packages that say what computed; a bundle and `spritz show --json` have all.
_NOTABLE = (
    "torch", "jax", "tensorflow", "lightning", "pytorch-lightning", "transformers", "accelerate", "deepspeed",
    "datasets", "numpy", "scipy", "pandas", "scikit-learn", "xgboost", "lightgbm", "flax", "optax", "triton", "vllm",
)  # fmt: skip


def text(entry: Entry, run: Run, surroundings: Mapping[str, Any]) -> str:
    """A heading, the command, a table of facts, and a table of metrics."""
    parts = [f"## {_plain(run.name)}", f"```sh\n{run.command_line}\n```"]
    parts.append(_table(("Fact", ""), [*_facts(entry, run), *_environment(run, surroundings)]))
    if entry.metrics:
        rows = [(name, f"{number:.6g}") for name, number in sorted(entry.metrics.items())]
        parts.append(_table(("Metric", "Last"), rows))
    return "\n\n".join(parts) + "\n"


def _facts(entry: Entry, run: Run) -> Iterator[tuple[str, str]]:
    yield "State", entry.state + (f" (exit status {entry.exit_code})" if entry.exit_code else "")
    if entry.started_at:
        begin = datetime.fromtimestamp(entry.started_at).astimezone().isoformat(" ", "minutes")
        yield "Started", begin + (f", for {clock(entry.ended_at - entry.started_at)}" if entry.ended_at else "")
    code = run.code
    if code.get("commit"):
        changes = " with changes that are in no commit" if code.get("dirty") else ""
        yield "Code", f"{_url(code.get('remote', ''))} {code['commit']}{changes}".strip()
    if code:
        yield "Tree of the code", code["tree"]
    for source in code.get("sources", ()):
        yield "Further source", f"{source['root']} {source.get('commit', '')} (tree {source['tree']})"
    for line in code.get("unfrozen", ()):
        yield "Not frozen", line
    for name, setting in sorted(run.parameters.items()):
        yield f"Parameter {name}", str(setting)
    if run.data:
        yield "Data", ", ".join(record.data_of(Path(entry.directory), run))
    requested = {name: run.options.get(name) for name in ("nodes", "tasks_per_node", "gpus", "gpus_per_node", "mem")}
    if shown := ", ".join(f"{name} {setting}" for name, setting in requested.items() if setting):
        yield "Requested", shown.replace("_", " ")


def _environment(run: Run, surroundings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    python = surroundings.get("python", {})
    if python.get("python"):
        versions = interpreters.versions(python)
        notable = ", ".join(f"{name} {versions[name]}" for name in _NOTABLE if name in versions)
        yield "Python", f"{python['python']}{f', {notable}' if notable else ''} ({len(versions)} packages)"
    for label, key in (("Container", "container"), ("GPU driver", "driver")):
        if surroundings.get(key):
            yield label, str(surroundings[key])


def _url(remote: str) -> str:
    """The address of a repository without a name and password of its user."""
    scheme, separator, place = remote.partition("://")
    return f"{scheme}://{place.rpartition('@')[2]}" if separator else remote


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [head, ("---", "---"), *((_plain(name), _plain(cell)) for name, cell in rows)]
    return "\n".join(f"| {name} | {cell} |" for name, cell in lines)


def _plain(cell: str) -> str:
    """Text that a table's cell takes as it is."""
    return " ".join(cell.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
