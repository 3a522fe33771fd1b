"""The planted faults fit the code: each can be applied, and what comes out is Python.

A failure here means that code moved or changed: adapt the fault in `tests/simulation/planted`, so that it breaks the
same guarantee. Whether the simulator finds the faults is for `python -m tests.simulation.planted.plant`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.planted import plant
from tests.simulation.planted.entry import Edit, Planted
from tests.simulation.planted.faults import AREAS, DEFECTS, FAULTS

RULES = range(1, 8)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_applies_to_one_place_and_leaves_python(fault: Planted) -> None:
    for edit in fault.edits:
        text = (plant.SOURCE / edit.file).read_text(encoding="utf-8")
        assert text.count(edit.old) == 1, f"{edit.file} has {text.count(edit.old)} times: {edit.old}"
        assert edit.old != edit.new
    for file, text in plant.changed_sources(fault).items():
        compile(text, file, "exec", dont_inherit=True)


def test_names_are_unique_and_say_what_breaks() -> None:
    counts = Counter(fault.name for fault in FAULTS)
    assert [name for name, count in counts.items() if count > 1] == []
    assert all(fault.name.isidentifier() and fault.why.endswith(".") for fault in FAULTS)
    assert len({fault.edits for fault in FAULTS}) == len(FAULTS)


def test_there_are_a_hundred_and_some_of_each_rule() -> None:
    assert len(FAULTS) >= 100
    counts = Counter(fault.rule for fault in FAULTS)
    assert set(counts) == set(RULES)
    assert {rule: count for rule, count in counts.items() if count < 3} == {}
    assert all(AREAS.values())


def test_the_ten_defects_that_were_mended_are_among_them() -> None:
    named = Counter(fault.defect for fault in FAULTS if fault.defect)
    assert {defect: named[defect] for defect in DEFECTS} == dict.fromkeys(DEFECTS, 1)


def test_a_planted_tree_is_the_package_with_the_fault(tmp_path: Path) -> None:
    fault = next(fault for fault in FAULTS if fault.name == "throttle_off_by_one")  # files of two packages
    tree = plant.planted_tree(fault, tmp_path / "tree")
    for edit in fault.edits:
        assert not (tree / "spritz" / edit.file).is_symlink()
        assert edit.new in (tree / "spritz" / edit.file).read_text(encoding="utf-8")
        assert edit.old in (plant.SOURCE / edit.file).read_text(encoding="utf-8")
    assert (tree / "spritz" / "core" / "decide" / "cancel.py").is_symlink()
    for part in (Path("spritz"), Path("spritz/core"), Path("spritz/core/decide")):
        entries = {entry.name for entry in (plant.SOURCE.parent / part).iterdir()} - {"__pycache__"}
        assert {entry.name for entry in (tree / part).iterdir()} == entries
    assert plant.import_problem(fault) == ""


_WARM = """
from spritz.core.decide.reservations import replenish
from spritz.core.decide.starting import start
from tests.simulation.planted import plant, warm
from tests.simulation.planted.faults import FAULTS

names = ("reservation_tried_at_each_event", "throttle_off_by_one", "node_named_twice_is_changed_twice")
faults = [fault for fault in FAULTS if fault.name in names]
functions = warm.Functions(sorted({edit.file for fault in FAULTS for edit in fault.edits}))
unfit = []
for fault in FAULTS:
    try:
        patch = warm.Patch(fault, plant.changed_sources(fault), functions)
    except warm.Unfit:
        unfit.append(fault.name)
        continue
    if fault in faults:
        patch.apply()
print(replenish.AGAIN_SECONDS, unfit)
"""


def test_most_faults_can_be_planted_in_a_process_that_has_the_code() -> None:
    environment = plant.environment_of(plant.SOURCE.parent) | {"PYTHONPATH": f"{plant.SOURCE.parent}:."}
    done = subprocess.run(
        [sys.executable, "-c", _WARM], cwd=plant.REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    seconds, _, unfit = done.stdout.partition(" ")
    assert float(seconds) == 0.0
    assert unfit.count("'") <= 2 * 5, f"these need a tree of their own: {unfit}"


def test_results_outlast_an_interruption(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert plant.read_results(path) == {}
    tried = plant.Found(fault=FAULTS[0], seeds=1, seconds=2.0)
    found = plant.Found(fault=FAULTS[0], seeds=2, seconds=4.0, rule="1", text="lost")
    for result in (tried, found):
        plant.append_result(path, result)
    assert plant.read_results(path) == {FAULTS[0].name: found}


def test_an_edit_that_does_not_fit_is_refused() -> None:
    fault = Planted(name="none", rule=1, file="core/job/timers.py", old="no such text", new="", why="Nothing.")
    with pytest.raises(ValueError, match="0 times in core/job/timers.py"):
        plant.changed_sources(fault)


def test_edits_of_one_file_are_applied_one_after_the_other() -> None:
    fault = Planted(
        name="two",
        rule=1,
        file="core/job/timers.py",
        old="DEADLINE_GRACE_SECONDS = 1.0",
        new="DEADLINE_GRACE_SECONDS = 2.0",
        why="Nothing.",
        also=(Edit("core/job/timers.py", "LISTENING_SECONDS = 5.0", "LISTENING_SECONDS = 6.0"),),
    )
    ((_, text),) = plant.changed_sources(fault).items()
    assert "DEADLINE_GRACE_SECONDS = 2.0" in text
    assert "LISTENING_SECONDS = 6.0" in text


@pytest.mark.parametrize(
    ("status", "answer", "expected"),
    [
        (1, {"seed": 14, "rule": 3, "text": "two owners", "runs": 9}, (5, "3", "")),
        (1, {"seed": 14, "rule": "3.once", "text": ""}, (5, "3.once", "")),
        (
            1,
            {"seed": 14, "rule": "the simulation does not fail", "text": "a\nb"},
            (0, "", "seed 14: the simulation does not fail: a b"),
        ),
        (0, {"runs": 20}, (20, "", "")),
        (0, None, (20, "", "")),
        (2, None, (0, "", "exit status 2: no module")),
        (None, {"runs": 7}, (7, "", "stopped after 30 s")),
    ],
)
def test_the_result_of_a_campaign_is_read(
    monkeypatch: pytest.MonkeyPatch,
    status: int | None,
    answer: dict[str, object] | None,
    expected: tuple[int, str, str],
) -> None:
    def run(command: list[str], environment: dict[str, str], seconds: float) -> tuple[int | None, str]:
        assert command[1:6] == ["-m", "spritz_testing.daemons", "--seeds", "10-29", "--stop-at-first"]
        assert (Path(environment["PYTHONPATH"]) / "spritz" / FAULTS[0].file).is_file()
        if answer is not None:
            Path(command[command.index("--json") + 1]).write_text(json.dumps(answer), encoding="utf-8")
        return status, "no module"

    monkeypatch.setattr(plant, "_run", run)
    found = plant.search(FAULTS[0], plant.Campaign(first=10, seeds=20, seconds=30.0))
    assert (found.seeds, found.rule, found.problem) == expected
    assert found.is_found is bool(found.rule)


def test_seeds_that_are_not_clean_without_a_fault_prove_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], environment: dict[str, str], seconds: float) -> tuple[int | None, str]:
        assert environment["PYTHONPATH"] == str(plant.SOURCE.parent)
        result = {"seed": 2, "rule": "6.pending", "text": "it waits"}
        Path(command[command.index("--json") + 1]).write_text(json.dumps(result), encoding="utf-8")
        return 1, ""

    monkeypatch.setattr(plant, "_run", run)
    assert plant.main(["--fault", FAULTS[0].name]) == 2
    assert capsys.readouterr().out == "without any fault: seed 2: 6.pending: it waits\n"


def test_the_report_names_the_median_and_what_was_not_found() -> None:
    results = [
        plant.Found(fault=FAULTS[0], seeds=3, seconds=1.0, rule="1", text="lost | job"),
        plant.Found(fault=FAULTS[1], seeds=9, seconds=2.0, rule="3", text="twice"),
        plant.Found(fault=FAULTS[2], seeds=200, seconds=9.0),
    ]
    said = plant.summary(results)
    assert "2 of 3 planted faults found" in said
    assert "median 6, most 9" in said
    assert f"not found: {FAULTS[2].name}" in said
    page = plant.markdown(results, seeds=200)
    assert f"| {FAULTS[0].name} | 1 | 3 | 1 | 1 | lost \\| job |" in page
    assert "not in 200 seeds" in page


def test_the_list_is_printed_without_a_simulator() -> None:
    command = [sys.executable, "-m", "tests.simulation.planted.plant", "--list", "--rule", "7"]
    done = subprocess.run(command, cwd=plant.REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n7  ") + done.stdout.startswith("7  ") == sum(fault.rule == 7 for fault in FAULTS)
