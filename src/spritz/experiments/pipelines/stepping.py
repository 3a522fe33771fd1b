"""Runs in a step's job: reads its input values, runs the step, stores its value, and submits steps that it
fans out to.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from spritz.experiments import api
from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import script, settings
from spritz.experiments.pipelines import cache
from spritz.experiments.pipelines.advance import advance
from spritz.experiments.pipelines.definition import Step, StepRecord, filled, import_file, word
from spritz.experiments.pipelines.state import Pipeline, Unit, label
from spritz.experiments.records import lives
from spritz.experiments.records.store import Store

#: between attempts to submit what follows, while the controller is away
_PATIENCE_SECONDS = (1, 5, 15, 30, 60, 120, 240)


def main(arguments: list[str]) -> int:
    """The status to leave with: the command's, 1 for an exception, 70 if what follows could not be submitted."""
    directory, batch, *unit_words = arguments
    pipeline = Pipeline.load(Path(directory))
    os.environ["SPRITZ_HOME"] = str(pipeline.directory.parent.parent)
    unit: Unit = int(unit_words[0]) if unit_words else None
    pipeline = pipeline.of_batch(batch)
    step = pipeline.definition.step(batch.rpartition(".")[0])
    if int(os.environ.get("SLURM_PROCID") or 0):
        return _other_rank(pipeline, step, unit)
    if pipeline.about(step.name, unit) is None:
        if cache.take(pipeline, step, unit):
            print(f"spritz: {step.name} has its value of an earlier run with the same code and inputs", file=sys.stderr)
        elif status := _run(pipeline, step, unit):
            return status
    newest = Pipeline.load(pipeline.directory)
    if any(other.over == {"$step": step.name} and step.over is None for other in newest.definition.steps):
        return _submit_rest(newest, step)
    return 0


def _other_rank(pipeline: Pipeline, step: StepRecord, unit: Unit) -> int:
    """Takes part in the step; rank 0 keeps the value."""
    # As rank 0 decides: a rank alone would wait for the others.
    if pipeline.about(step.name, unit) is not None or cache.take(pipeline, step, unit):
        return 0
    if step.function:
        try:
            _call(pipeline, step, unit)
        except BaseException:
            traceback.print_exc()
            return 1
        return 0
    return _command(pipeline, step, unit, os.devnull)


def _run(pipeline: Pipeline, step: StepRecord, unit: Unit) -> int:
    """0 if the unit has its value."""
    output = Path(os.environ["SPRITZ_RUN_DIR"]) / "output.json"
    value: Any = None
    if step.function:
        try:
            value = _call(pipeline, step, unit)
            data = cache.pickled(value, f"what {step.name} returned")
        except BaseException as error:
            traceback.print_exc()
            if isinstance(error, ExperimentError):
                print(error.message, error.hint, sep="\n", file=sys.stderr)
            return 1
    else:
        output.unlink(missing_ok=True)
        if status := _command(pipeline, step, unit, str(output)):
            return status
        if output.exists():
            try:
                value = json.loads(output.read_text(encoding="utf-8"))
            except ValueError as error:
                print(f"spritz: {step.name} wrote to $SPRITZ_OUTPUT what is no JSON: {error}", file=sys.stderr)
                return 65
        data = cache.pickled(value, step.name)
    known = {**cache.about(value, data), "run": os.environ["SPRITZ_RUN"], "cached": False}
    fans_out = step.over is None and any(other.over == {"$step": step.name} for other in pipeline.definition.steps)
    if fans_out and known["length"] is None:
        print(f"spritz: {step.name} is mapped over: a list is expected, not {type(value).__name__}", file=sys.stderr)
        return 65
    if newer := lives.newer():
        print(f"spritz: a newer start of this step, {newer}, has begun: its value counts", file=sys.stderr)
        return 1
    cache.keep(pipeline, step, unit, data, known)
    pipeline.put(step.name, unit, data, known)
    return 0


def _call(pipeline: Pipeline, step: StepRecord, unit: Unit) -> Any:
    # The working directory is that of the pipeline, in the snapshot.
    module = import_file(Path(pipeline.definition.file))
    function = getattr(module, step.function, None)
    if not isinstance(function, Step):
        raise ExperimentError(f"{pipeline.definition.file} has no step {step.function}")
    item = pipeline.item(step, unit)
    arguments = filled(step.arguments, pipeline.value, item)
    return function.function(*arguments, **filled(step.named, pipeline.value, item))


def _command(pipeline: Pipeline, step: StepRecord, unit: Unit, output: str) -> int:
    item = pipeline.item(step, unit)
    words = [word(argument) for argument in filled(step.arguments, pipeline.value, item)]
    options = api.run_options(
        {key: value for key, value in step.options.items() if key != "name"},
        settings.Settings(run={key: value for key, value in pipeline.defaults.items() if key != "name"}),
        "",
    )
    if options.template in script.LAUNCHERS:
        processes = settings.per_node_gpus(options) or options.tasks_per_node or "1"
        words = script.launcher_words(options.template, words, processes, os.environ)
    variables = {**os.environ, "SPRITZ_OUTPUT": output, "SPRITZ_STEP": step.name}
    if unit is not None:
        variables |= {"SPRITZ_ITEM": word(item), "SPRITZ_INDEX": label(unit)}
    try:
        status = subprocess.run(words, env=variables).returncode
    except OSError as error:
        print(f"spritz: {words[0]}: {error.strerror}", file=sys.stderr)
        return 127
    return status if status >= 0 else 128 - status


def _submit_rest(pipeline: Pipeline, step: StepRecord) -> int:
    replaced = {"MASTER_ADDR", "MASTER_PORT", "PYTHONUNBUFFERED", *(step.options.get("env") or {})}
    environment = {key: value for key, value in os.environ.items() if key not in replaced}
    for patience in (*_PATIENCE_SECONDS, 0):
        try:
            submitted = advance(pipeline, Store(pipeline.directory.parent.parent), environment=environment)
        except ExperimentError as error:
            print(f"spritz: {error.message}", file=sys.stderr)
            if not patience or not slurm.is_transient(error.message):
                hint = f"`spritz pipeline retry {pipeline.name}` submits the rest"
                print(f"spritz: what follows {step.name} is not submitted; {hint}", file=sys.stderr)
                return 70
            time.sleep(patience)
            continue
        if submitted:
            print(f"spritz: submitted {', '.join(submitted)}", file=sys.stderr)
        return 0
    return 70


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ExperimentError, pickle.UnpicklingError) as error:
        print(f"spritz: {error}", file=sys.stderr)
        sys.exit(70)
