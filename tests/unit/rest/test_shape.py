"""Answers take the form of their document, bodies are read by it."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.model.ids import INFINITE
from spritz.presentation.json.documents import VERSIONS
from spritz.presentation.json.documents import operations as operations_of
from spritz.presentation.json.shape import MISSING, Shapes
from spritz.rest.intake import Intake, Problems
from tests.unit.rest.schema import schema_of

PLAIN = st.none() | st.booleans() | st.integers(-9, 1 << 34) | st.floats(-1e9, 1e9) | st.text(max_size=5)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["set", "number", "jobs", "x"]), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_empty_form_of_every_answer_is_what_its_document_says(version: str) -> None:
    shapes = Shapes(version)
    for one in operations_of(version):
        jsonschema.validate(shapes.of(one.answer)(MISSING), schema_of(version, one.answer))


@given(value=PLAIN | st.lists(PLAIN, max_size=3))
def test_whatever_goes_in_an_answer_of_the_document_comes_out(value: Any) -> None:
    operation = next(one for one in operations_of("v0.0.45") if one.key == "GET /slurm/partitions")
    whole = Shapes("v0.0.45").of(operation.answer)({"partitions": [value, {"name": value, "maximums": value}]})
    jsonschema.validate(whole, schema_of("v0.0.45", operation.answer))


def read(schema: dict[str, Any], value: Any) -> tuple[Any, list[str], list[str]]:
    problems = Problems()
    found = Intake("v0.0.45").of(schema)(value, "#", problems)
    return found, [error.text for error in problems.errors], [warning.place for warning in problems.warnings]


def test_numbers_and_lists_are_read_as_clients_write_them() -> None:
    job = {"$ref": "#/components/schemas/v0.0.45_job_desc_msg"}
    for given_limit, meant in (
        (5, 5),
        ("5", 5),
        ({"set": True, "infinite": False, "number": 5}, 5),
        ({"infinite": True}, INFINITE),
        ({"set": False, "number": 5}, None),
    ):
        assert read(job, {"time_limit": given_limit}) == ({"time_limit": meant}, [], [])
    assert read(job, {"environment": {"A": "1"}}) == ({"environment": ["A=1"]}, [], [])
    assert read(job, {"required_nodes": "n1,n2"}) == ({"required_nodes": ["n1", "n2"]}, [], [])


def test_what_cannot_be_is_an_error_and_what_is_unknown_a_warning() -> None:
    job = {"$ref": "#/components/schemas/v0.0.45_job_desc_msg"}
    _, errors, warnings = read(job, {"tasks": "many", "hold": "perhaps", "mail_type": ["SMOKE"], "color": 1})
    assert len(errors) == 3
    assert warnings == ["#/color"]
    assert read(job, [1])[1] == ["Expected a dictionary but got a list"]


@given(value=VALUES)
def test_no_body_makes_reading_fail(value: Any) -> None:
    read({"$ref": "#/components/schemas/v0.0.45_job_submit_req"}, value)
