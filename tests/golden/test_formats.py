"""Stored values of every format so far are read as what they were, and no record changes without a new format.

If a golden file is read otherwise than before, old state is misread: mend the code or `model.upcast`, not the file.
"""

from __future__ import annotations

import json

import pytest

from spritz.accounting.schema import REVISION
from spritz.model import stored, upcast
from spritz.model.events import ALL_EVENTS
from tests.golden import history, read, samples, schema
from tests.golden.write import ARCHIVES, FORMATS, advice, released

NUMBERS = sorted(int(path.name) for path in FORMATS.iterdir())


def schema_of(number: int) -> schema.Schema:
    """What was stored in a format."""
    return schema.parsed((FORMATS / str(number) / "schema.txt").read_text())


def test_stored_records_are_those_of_the_present_format() -> None:
    assert [*range(1, stored.FORMAT + 1)] == NUMBERS
    now, golden = schema.present(), schema_of(stored.FORMAT)
    if now != golden:
        pytest.fail(advice(schema.difference(golden, now)), pytrace=False)
    assert schema.fingerprint(now) == stored.FINGERPRINT, "run `make formats`"


@pytest.mark.parametrize("number", NUMBERS[:-1])
def test_what_became_of_each_record_that_changed_is_written_down(number: int) -> None:
    """Fields that were only added have defaults; all else has a function in CHANGES."""
    changed = schema.changed_records(schema_of(number), schema_of(number + 1))
    assert changed <= set(upcast.CHANGES.get(number, {})), f"CHANGES[{number}] of model.upcast does not say"


def test_formats_before_the_present_one_are_those_of_releases() -> None:
    assert set(range(1, stored.FORMAT)) <= set(released())


@pytest.mark.parametrize("number", NUMBERS)
def test_golden_files_are_read_as_what_they_were(number: int) -> None:
    directory = FORMATS / str(number)
    expected = {path.stem: json.loads(path.read_text()) for path in directory.glob("*.json")}
    found = read.all_of(directory)
    assert found.keys() == expected.keys()
    then, now = schema_of(number), schema.present()
    for name, value in found.items():
        assert schema.misread(expected[name], value, then, now, f"{directory.name}/{name}") == []


def test_there_are_archives_of_the_present_revision_of_the_database() -> None:
    assert (ARCHIVES / REVISION).exists(), "run `make formats`"


@pytest.mark.parametrize("revision", sorted(path.name for path in ARCHIVES.iterdir()))
def test_archives_of_every_revision_are_loaded_as_what_they_were(revision: str) -> None:
    expected = json.loads((ARCHIVES / revision / "expected.json").read_text())
    assert read.archives(ARCHIVES / revision) == expected


@pytest.mark.parametrize("number", NUMBERS)
def test_what_was_read_is_written_in_the_present_format(number: int) -> None:
    machine = read.recovered(FORMATS / str(number) / "journal.db")
    written = machine.image()
    assert written.startswith(bytes((0x93, stored.FORMAT)))
    assert type(machine).from_image(written).image() == written


def test_history_and_samples_have_every_kind_of_event() -> None:
    """A new kind needs a scene in `tests/golden/history.py`."""
    assert {type(event).__name__ for event in history.tell()} == set(ALL_EVENTS)
    assert {type(event).__name__ for event in samples.events()} == set(ALL_EVENTS)


# -- the tool


BEFORE: schema.Schema = {
    "Job": ["id: int", "name: str = ''"],
    "Place": [schema.IN_ORDER, "x: int", "y: int = 0"],
    "State": ["value 'DONE'"],
}


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        ({"Job": ["id: int", "name: str = ''", "nice: int = 0"]}, set()),
        ({"State": ["value 'DONE'", "value 'LOST'"]}, set()),
        ({"Place": [schema.IN_ORDER, "x: int", "y: int = 0", "z: int = 0"]}, set()),
        ({"New": ["id: int"]}, set()),
        ({"Job": ["id: int"]}, {"Job"}),
        ({"Job": ["id: int", "name: str = ''", "uid: int"]}, {"Job"}),
        ({"Job": ["id: int", "name: str = 'job'"]}, {"Job"}),
        ({"Job": ["id: int(ge=1)", "name: str = ''"]}, {"Job"}),
        ({"Place": [schema.IN_ORDER, "x: int", "z: int = 0", "y: int = 0"]}, {"Place"}),
        ({"State": []}, {"State"}),
    ],
)
def test_only_additions_with_a_default_need_no_function(after: schema.Schema, changed: set[str]) -> None:
    assert schema.changed_records(BEFORE, {**BEFORE, **after}) == changed
    if after != {"New": ["id: int"]}:
        assert schema.fingerprint(BEFORE) != schema.fingerprint({**BEFORE, **after})


@pytest.mark.parametrize(
    ("policy", "default", "changed"),
    [
        # a new field, which the default of the outer record shows
        (["grace: int = 0", "most: int = 7"], "{'grace': 0, 'most': 7}", set()),
        # an outer record that says something else of the new field than the inner one: old records did not say that
        (["grace: int = 0", "most: int = 7"], "{'grace': 0, 'most': 8}", {"Settings"}),
        # another default of an old field
        (["grace: int = 5"], "{'grace': 5}", {"Policy", "Settings"}),
        (["grace: int = 0"], "{'grace': 5}", {"Settings"}),
    ],
)
def test_a_new_field_of_a_record_within_a_default_needs_no_function(
    policy: list[str], default: str, changed: set[str]
) -> None:
    before = {"Policy": ["grace: int = 0"], "Settings": ["policy: Policy = {'grace': 0}"]}
    after = {"Policy": policy, "Settings": [f"policy: Policy = {default}"]}
    assert schema.changed_records(before, after) == changed
    within = {"Image": [f"settings: Settings = {{'policy': {default}}}"], **after}
    outer = {"Image"} if "Settings" in changed else set()
    assert schema.changed_records({"Image": ["settings: Settings = {'policy': {'grace': 0}}"], **before}, within) == (
        changed | outer
    )


def test_a_new_field_with_its_default_is_no_other_reading() -> None:
    then: schema.Schema = {"Policy": ["grace: int = 0"]}
    now: schema.Schema = {"Policy": ["grace: int = 0", "kinds: list[str] = ()", "most: int = 7"]}
    old = {"at": 1.0, "policies": [{"grace": 5}]}

    def misread(**policy: object) -> list[str]:
        return schema.misread(old, {"at": 1.0, "policies": [policy]}, then, now)

    assert misread(grace=5) == misread(grace=5, most=7, kinds=[]) == []
    assert misread(grace=0) == [".policies[0].grace is 0, not 5"]
    assert misread(grace=5, most=8) == [".policies[0].most is new"]
    assert misread(grace=5, other=7) == [".policies[0].other is new"]
    assert misread(most=7) == [".policies[0].grace is missing"]
    assert schema.misread(old, {"at": 1.0, "policies": []}, then, now) == [".policies is [], not [{'grace': 5}]"]


def test_a_changed_record_fails_with_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = schema.difference(BEFORE, {**BEFORE, "Job": ["id: int"]})
    assert changed == "- Job: name: str = ''"
    assert "run `make formats`" in advice(changed)
    monkeypatch.setattr("tests.golden.write.released", lambda: {stored.FORMAT: "1.0"})
    text = advice(changed)
    assert f"FORMAT = {stored.FORMAT + 1}" in text
    assert f"CHANGES[{stored.FORMAT}]" in text
    assert changed in text


def test_the_text_of_a_schema_says_all_of_it() -> None:
    now = schema.present()
    assert schema.parsed(schema.text_of(now)) == now


def test_samples_leave_no_field_at_its_default() -> None:
    """A field that is equal to its default is not written."""
    for event in samples.events():
        for field, default in zip(reversed(event.__struct_fields__), reversed(event.__struct_defaults__), strict=False):
            assert getattr(event, field) != default, f"{type(event).__name__}.{field}"
