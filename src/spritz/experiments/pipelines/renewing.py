"""New code for the steps of a pipeline that have no result yet: a further version of its definition and snapshot.

Finished steps keep their results, and jobs that run keep their code. Each batch of jobs names its version, so that a
job never mixes the code of one version with the arguments of another.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, replace

from spritz.experiments.errors import ExperimentError
from spritz.experiments.pipelines.definition import Definition, StepRecord, references
from spritz.experiments.pipelines.state import Pipeline


def write(pipeline: Pipeline, fresh: Pipeline) -> None:
    """Make `fresh` the pipeline's newest version. The caller has the lock."""
    pipeline.keep_version()
    replace(fresh, version=pipeline.version + 1).save()


def same(pipeline: Pipeline, other: Pipeline) -> bool:
    """Whether both have the same code and definition."""
    return _plain(pipeline) == _plain(other)


def _plain(pipeline: Pipeline) -> str:
    code = None if pipeline.code is None else asdict(pipeline.code)
    return json.dumps([pipeline.definition.to_json(), code, pipeline.defaults], sort_keys=True)


def check(pipeline: Pipeline, defined: Definition, running: Collection[str]) -> None:
    """Raises ExperimentError unless the steps that have begun are still in the pipeline, with the same inputs.

    Steps may be added, and those without a result may get other inputs.
    """
    hint = f"`spritz pipeline run {defined.file}` starts another, which takes unchanged steps from the cache"
    steps = {step.name: step for step in defined.steps}
    for before in pipeline.definition.steps:
        after = steps.get(before.name)
        if after is None:
            raise ExperimentError(
                f"{defined.file} has no step {before.name} any more, and {pipeline.name} has", hint=hint
            )
        if not has_begun(pipeline, before.name, running):
            continue
        if _inputs(before) != _inputs(after):
            now = f"now needs {_named(after)}, and had {_named(before)}"
            raise ExperimentError(f"{before.name} {now}: {pipeline.name} has run it already", hint=hint)
    for step in defined.steps:
        source = next(references(step.over), "")
        if not source or steps[source].over is not None:
            continue
        result = pipeline.about(source, None) if source in _names(pipeline.definition) else None
        if result is not None and result["length"] is None:
            raise ExperimentError(f"{step.name} is mapped over {source}, whose result is no list", hint=hint)
        if result is None and source in running and source not in _mapped_over(pipeline.definition):
            raise ExperimentError(
                f"{step.name} is mapped over {source}, which runs with the earlier code and may return no list",
                hint="once it has ended, retry again",
            )


def has_begun(pipeline: Pipeline, step: str, running: Collection[str]) -> bool:
    """Whether a unit of the step has a result, or runs."""
    units = pipeline.units(step) or []
    return step in running or any(pipeline.about(step, unit) is not None for unit in units)


def changed(before: Pipeline, after: Pipeline) -> list[str]:
    """Finished steps that the newer definition has otherwise."""
    steps = {step.name: step for step in after.definition.steps}
    return [
        step.name
        for step in before.definition.steps
        if (units := before.units(step.name)) is not None
        and all(before.about(step.name, unit) is not None for unit in units)
        and json.dumps(asdict(steps[step.name])) != json.dumps(asdict(step))
    ]


def _inputs(step: StepRecord) -> tuple[list[str], str]:
    return sorted(step.sources), json.dumps(step.over)


def _named(step: StepRecord) -> str:
    over = f"a list of {len(step.over)}" if isinstance(step.over, list) else ""
    return ", ".join([*sorted(step.sources), *([over] if over else [])]) or "nothing"


def _names(definition: Definition) -> set[str]:
    return {step.name for step in definition.steps}


def _mapped_over(definition: Definition) -> set[str]:
    return {source for step in definition.steps for source in references(step.over)}
