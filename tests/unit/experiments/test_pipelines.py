"""Definitions of pipelines, values on disk, and what a step is kept under."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spritz.experiments import calling
from spritz.experiments.commands import pipeline as command
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import arrays
from spritz.experiments.pipelines import cache, renewing
from spritz.experiments.pipelines.definition import Definition, StepRecord, filled, load, step
from spritz.experiments.pipelines.state import Batch, Pipeline, make


def pipeline(directory: Path, *steps: StepRecord) -> Pipeline:
    name, place = make(directory, "p")
    return Pipeline(
        directory=place,
        name=name,
        user="u",
        created_at=0.0,
        definition=Definition("p", "p.py", {}, list(steps)),
        code=None,
        work_directory=str(directory),
        files={each.name: "files" for each in steps},
    )


def put(made: Pipeline, name: str, unit: int | None, value: Any) -> None:
    data = cache.pickled(value, "a value")
    made.put(name, unit, data, cache.about(value, data))


def test_a_command_of_yaml_is_quoted_for_bash_and_keeps_the_shells_own_braces(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "parameters: {who: it's me}\nsteps:\n  b: {map: a, command: 'echo {who} {item} {a} ${HOME} {x}'}\n"
        "  a: {command: [run, '--to={who}']}\n"
    )
    made = load(tmp_path / "p.yaml", {}, tmp_path)
    assert [each.name for each in made.steps] == ["a", "b"]
    assert filled(made.step("a").arguments, str) == ["run", "--to=it's me"]
    words = filled(made.step("b").arguments, {"a": [1, "x y"]}.__getitem__, "$HOME")
    assert words == ["bash", "-c", "echo 'it'\"'\"'s me' '$HOME' '[1, \"x y\"]' ${HOME} {x}"]
    assert made.step("b").sources == ["a"]
    assert Definition.from_json(made.to_json()) == made


def test_a_step_is_its_function_outside_a_pipeline() -> None:
    @step(gpus=1)
    def double(x: int) -> int:
        return 2 * x

    assert double(4) == 8
    assert double.map([1, 2]) == [2, 4]


def test_the_first_claim_of_a_batch_stands(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    assert made.claimed("a.1") == ""
    assert made.claim("a.1", "7") == "7"
    assert made.claim("a.1", "8") == "7"
    assert os.listdir(made.directory / "claims") == ["a.1"]


def test_a_map_has_the_units_of_what_it_maps_over(tmp_path: Path) -> None:
    made = pipeline(
        tmp_path,
        StepRecord("a"),
        StepRecord("b", over={"$step": "a"}),
        StepRecord("c", over={"$step": "b"}),
        StepRecord("d", over=["x", "y"]),
    )
    assert (made.units("a"), made.units("c"), made.units("d")) == ([None], None, [0, 1])
    put(made, "a", None, ["p", "q", "r"])
    assert made.units("c") == [0, 1, 2]
    assert made.item(made.definition.step("b"), 2) == "r"
    for unit in range(3):
        put(made, "b", unit, unit * 10)
    assert made.item(made.definition.step("c"), 2) == 20
    assert made.value("b") == [0, 10, 20]


def test_a_value_is_kept_under_what_it_came_from(tmp_path: Path) -> None:
    def key(value: Any, record: StepRecord, unit: int | None = 0, files: str = "files") -> str:
        made = pipeline(tmp_path, StepRecord("a"), record)
        put(made, "a", None, value)
        made.files["b"] = files
        return cache.key(made, record, unit)

    mapped = StepRecord("b", source="s", over={"$step": "a"}, arguments=[{"$item": True}])
    assert key(["x", "y"], mapped) == key(["x", "z"], mapped)
    assert key(["x", "y"], mapped) != key(["w", "y"], mapped)
    assert key(["x"], mapped) != key(["x"], mapped, files="other")
    assert key(["x"], mapped) != key(
        ["x"], StepRecord("b", source="t", over={"$step": "a"}, arguments=[{"$item": True}])
    )
    whole = StepRecord("b", source="s", arguments=[{"$step": "a"}])
    assert key(1, whole, None) == key(1, whole, None) != key(2, whole, None)
    assert key(1, StepRecord("b", cache=False), None) == ""


def test_a_damaged_value_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    record = StepRecord("a", source="s")
    first, second = pipeline(tmp_path, record), pipeline(tmp_path, record)
    data = cache.pickled([1], "a value")
    cache.keep(first, record, None, data, cache.about([1], data))
    assert cache.take(second, record, None)
    assert second.value("a") == [1]
    third = pipeline(tmp_path, record)
    (kept,) = (tmp_path / "values").glob("*.pkl")
    kept.write_bytes(pickle.dumps([2]))
    assert not cache.take(third, record, None)


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    made.save()
    assert Pipeline.load(made.directory) == made
    path = made.directory / "pipeline.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 3'))
    with pytest.raises(ExperimentError, match="later release"):
        Pipeline.load(made.directory)


def test_a_batch_keeps_the_version_of_its_code_and_the_cache_too(tmp_path: Path) -> None:
    first = pipeline(tmp_path, StepRecord("a"), StepRecord("b", source="s", arguments=[{"$step": "a"}]))
    first.save()
    put(first, "a", None, 1)
    first.write_batch(Batch("b", 1, [None], {"all": "p-1-b"}))
    assert '"version"' not in (first.directory / "pipeline.json").read_text(), "an earlier release reads it"
    first.keep_version()
    assert Pipeline.load(first.directory) == first, "cut short here, nothing has changed"
    steps = [StepRecord("a"), StepRecord("b", source="t", arguments=[{"$step": "a"}])]
    fresh = replace(first, definition=Definition("p", "p.py", {}, steps), files={"a": "files", "b": "other"})
    assert not renewing.same(first, fresh)
    renewing.write(first, fresh)
    newest = Pipeline.load(first.directory)
    assert newest == replace(fresh, version=2)
    newest.write_batch(Batch("b", 2, [None], {"all": "p-1-b.2"}, version=2))
    assert [batch.version for batch in newest.batches()] == [1, 2]
    assert (newest.of_batch("b.1"), newest.of_batch("b.2")) == (first, newest)
    assert first.of_batch("b.2") == newest, "by a process that had read the first version"
    keys = {cache.key(each, each.definition.step("b"), None) for each in (newest.of_batch("b.1"), newest)}
    assert len(keys) == 2


LIST = {"$step": "made"}


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ([StepRecord("made"), StepRecord("use", arguments=[LIST])], ""),
        ([StepRecord("made", source="new"), StepRecord("new"), StepRecord("use", arguments=[{"$step": "new"}])], ""),
        ([StepRecord("made"), StepRecord("new", over=LIST), StepRecord("use")], ""),
        ([StepRecord("made")], "has no step use any more"),
        ([StepRecord("new"), StepRecord("made", arguments=[{"$step": "new"}]), StepRecord("use")],
         "made now needs new, and had nothing: p-1 has run it already"),
        ([StepRecord("made", over=[1, 2]), StepRecord("use")], "made now needs a list of 2, and had nothing"),
        ([StepRecord("runs"), StepRecord("made"), StepRecord("use", over={"$step": "runs"})],
         "use is mapped over runs, which runs with the earlier code"),
    ],
)  # fmt: skip
def test_new_code_fits_what_has_run_or_is_refused(tmp_path: Path, after: list[StepRecord], words: str) -> None:
    """`made` has a result, a list, and `use` has none."""
    steps = [StepRecord("made"), StepRecord("use", arguments=[LIST])]
    running = {"runs"} if any(each.name == "runs" for each in after) else set()
    made = pipeline(tmp_path, *[StepRecord(name) for name in running], *steps)
    put(made, "made", None, [1, 2])
    defined = Definition("p", "p.py", {}, after)
    if not words:
        renewing.check(made, defined, running)
        assert renewing.changed(made, replace(made, definition=defined)) == (["made"] if after[0].source else [])
        return
    with pytest.raises(ExperimentError, match=words):
        renewing.check(made, defined, running)


def test_a_result_that_is_no_list_is_not_mapped_over_later(tmp_path: Path) -> None:
    made = pipeline(tmp_path, StepRecord("made"), StepRecord("use"))
    put(made, "made", None, 7)
    with pytest.raises(ExperimentError, match="use is mapped over made, whose result is no list"):
        renewing.check(made, Definition("p", "p.py", {}, [StepRecord("made"), StepRecord("use", over=LIST)]), ())


def test_an_exception_that_cannot_be_pickled_comes_back_in_words() -> None:
    class Bad(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} {two}")

    try:
        raise Bad(1, 2)
    except Bad as error:
        data = calling.failed(error)
    assert b"Bad: 1 2" in data


def test_indices_of_an_array_are_ranges() -> None:
    assert arrays.ranges([3, 0, 1, 2, 7, 9, 10]) == "0-3,7,9-10"


def test_a_lock_that_another_process_holds_is_told_from_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = pipeline(tmp_path)
    assert not made.busy()

    def refuse(number: int) -> None:
        def lockf(*words: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "lockf", lockf)

    refuse(errno.EACCES)  # fcntl(2): one of two numbers for a lock that is held
    assert made.busy()
    refuse(errno.ENOLCK)
    with pytest.raises(ExperimentError, match="No locks available"):
        made.busy()


def test_a_retry_has_the_secret_variables_of_spritz_yaml_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pipeline.json does not have their values, and a step without them may fail late, or not at all."""
    monkeypatch.delenv("API_KEY", raising=False)
    made = replace(pipeline(tmp_path, StepRecord("a")), secret_names=["API_KEY"])
    made.save()
    assert Pipeline.load(made.directory).secret_names == ["API_KEY"]
    with pytest.raises(ExperimentError, match=f"API_KEY of {made.name} was secret and is not kept"):
        command._with_secrets(made)
    monkeypatch.setenv("API_KEY", "of-the-shell")
    assert command._with_secrets(made)["API_KEY"] == "of-the-shell"
    (tmp_path / "spritz.yaml").write_text("run: {env: {API_KEY: of-the-file}}\n")
    assert command._with_secrets(made)["API_KEY"] == "of-the-file"
    made.secret_names = []
    made.save()
    assert "secret_names" not in (made.directory / "pipeline.json").read_text(), "an earlier release reads it"
