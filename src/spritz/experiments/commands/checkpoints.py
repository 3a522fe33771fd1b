"""List a run's checkpoints, newest first, or prune them by policy; the newest is never removed."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from datetime import datetime
from pathlib import Path

from spritz.experiments.access import others
from spritz.experiments.cluster import slurm
from spritz.experiments.code import snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.interface import ANY_RUN_HELP, Terminal, reporting, size
from spritz.experiments.job import resuming, states, submission
from spritz.experiments.records import record
from spritz.experiments.records.store import Store
from spritz.experiments.results import checkpoints, metrics
from spritz.experiments.results.checkpoints import Checkpoint


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=ANY_RUN_HELP)
    parser.add_argument("--dir", action="append", default=[], metavar="DIR",
                        help="also search here, for a run that writes outside its code directory")  # fmt: skip
    parser.add_argument("--keep-last", type=int, metavar="N", help="policy: keep the newest N (at least 1)")
    parser.add_argument("--keep-best", metavar="METRIC[:min|:max]",
                        help="policy: keep the best by this metric (for a loss or error the smallest)")  # fmt: skip
    parser.add_argument("--prune", action="store_true", help="remove checkpoints that the policy does not keep")
    parser.add_argument("--json", action="store_true", help="one JSON object")


@reporting
def run(arguments: Namespace, terminal: Terminal) -> int:
    """0; 1 if something could not be removed."""
    base = home()
    store = Store(base)
    store, entry = others.find(store, arguments.run, submission.user())
    if store.foreign and arguments.prune:
        raise ExperimentError(f"--prune: only {entry.owner} can remove checkpoints of {arguments.run}")
    states.refresh(store, [entry])
    directory = Path(entry.directory)
    known = record.read(directory)
    policy = arguments.keep_last is not None or arguments.keep_best is not None
    if arguments.keep_last is not None and arguments.keep_last < 1:
        raise ExperimentError("--keep-last: 1 or more; the newest is never removed", exit_code=2)
    if arguments.prune and not policy:
        raise ExperimentError("--prune needs a policy", hint="--keep-last N, --keep-best METRIC, or both", exit_code=2)
    roots = [directory, *(Path(item).absolute() for item in arguments.dir)]
    if (elsewhere := resuming.kept_elsewhere(directory, known.options)) is not None:
        roots.append(elsewhere)
    if known.runs_in_place:
        roots.append(Path(known.surroundings.get("variables", {}).get("PWD", directory)))
    listed = checkpoints.find(roots, tracked=_tracked(base, directory, known), since=known.created_at)
    metric, colon, direction = (arguments.keep_best or "").partition(":")
    if direction not in ("", "min", "max") or (colon and not direction):
        raise ExperimentError(f"--keep-best {arguments.keep_best}: METRIC, METRIC:min or METRIC:max", exit_code=2)
    values: dict[Checkpoint, float] = {}
    if metric:
        points = metrics.history(store.home, directory)
        values = {item: value for item in listed if (value := checkpoints.value_of(item, metric, points)) is not None}
        if listed and not values:
            raise ExperimentError(f"no checkpoint of {entry.name} has a value of {metric}", hint="nothing was removed")
    least = direction == "min" or (not direction and checkpoints.less_is_better(metric))
    surplus = checkpoints.to_prune(listed, keep_last=arguments.keep_last, values=values, least=least) if policy else []
    if arguments.json:
        terminal.out(json.dumps({"checkpoints": [_row(item, values, surplus) for item in listed]}, indent=1) + "\n")
    elif not listed:
        terminal.err(f"No checkpoints of {entry.name}: none in {', '.join(map(str, roots))}.\n")
    else:
        terminal.out(_table(listed, values, surplus, directory, metric))
    freed = sum(item.size for item in surplus)
    if surplus and not arguments.prune:
        terminal.err(f"--prune would remove {len(surplus)} and free {size(freed)}.\n")
    if not arguments.prune:
        return 0
    status = 0
    for item in surplus:
        try:
            checkpoints.remove(item)
        except OSError as error:
            terminal.error(f"{error.filename}: {error.strerror}")
            status = 1
    if status == 0:
        still = "" if entry.state in slurm.FINAL else "; the run goes on and may write more"
        terminal.err(f"Removed {len(surplus)}, freed {size(freed)}{still}.\n")
    return status


def _tracked(base: Path, directory: Path, known: record.Run) -> set[Path]:
    """Files of the snapshot."""
    tree = known.code.get("tree", "")
    return {directory / "code" / name for name in snapshot.names(base / "snapshots.git", tree)} if tree else set()


def _row(item: Checkpoint, values: dict[Checkpoint, float], surplus: list[Checkpoint]) -> dict[str, object]:
    return {
        "paths": [str(path) for path in item.paths], "step": item.step, "written_at": item.written_at,
        "bytes": item.size, "value": values.get(item), "kept": item not in surplus,
    }  # fmt: skip


def _table(
    listed: list[Checkpoint], values: dict[Checkpoint, float], surplus: list[Checkpoint], directory: Path, metric: str
) -> str:
    rows = [("WRITTEN", "STEP", "SIZE", metric.upper() or "", "", "PATH")]
    for item in listed:
        path = item.paths[0]
        shown = str(path.relative_to(directory)) if directory in path.parents else str(path)
        rows.append(
            (
                datetime.fromtimestamp(item.written_at).strftime("%m-%d %H:%M:%S"),
                "-" if item.step is None else str(item.step),
                size(item.size),
                f"{values[item]:g}" if item in values else "-" if metric else "",
                "surplus" if item in surplus else "",
                shown + (f" and {len(item.paths) - 1} more" if len(item.paths) > 1 else ""),
            )
        )
    wanted = [column for column in range(len(rows[0])) if any(row[column] for row in rows)]
    widths = {column: max(len(row[column]) for row in rows) for column in wanted}
    return "".join("  ".join(row[column].ljust(widths[column]) for column in wanted).rstrip() + "\n" for row in rows)
