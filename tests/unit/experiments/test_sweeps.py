"""Sweeps without a cluster: spaces, plans, early stopping compared with Optuna's, trials' files, multirun words."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from spritz.experiments.errors import ExperimentError
from spritz.experiments.records.record import Run
from spritz.experiments.secrets import MASK
from spritz.experiments.sweeps import multirun, plan, queue, report, sampler, space, stopping, trials
from spritz.experiments.sweeps import sweep as sweeps
from spritz.experiments.sweeps.plan import Plan
from spritz.experiments.sweeps.stopping import Peer, Policy


def parsed(**values: Any) -> Plan:
    return plan.parse({"command": "train.py", "parameters": {"x": [1, 2]}, **values}, "f")


def axis(**values: Any) -> space.Parameter:
    return space.parse({"x": values}, "f")[0]


def test_a_grid_has_the_points_that_are_written() -> None:
    parameters = space.parse({"lr": [0.1, "1e-3"], "n": {"min": 1, "max": 3}}, "f")
    assert [tuple(point.values()) for point in space.grid(parameters)] == [
        (0.1, 1), (0.1, 2), (0.1, 3), ("1e-3", 1), ("1e-3", 2), ("1e-3", 3),
    ]  # fmt: skip
    assert axis(min=0.1, max=0.5, step=0.1).points() == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert axis(min="1e-4", max=1, log=True, count=3).points() == [0.0001, 0.01, 1.0]
    assert axis(min=1, max=1024, log=True, count=3).points() == [1, 32, 1024]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"values": []}, "at least one value"),
        ({"values": [1, 1]}, "1 occurs twice"),
        ({"min": 2, "max": 1}, "min 2 is above max 1"),
        ({"min": 0, "max": 1, "log": True}, "starts above 0"),
        ({"min": 0, "max": 1, "step": 0}, "step must be above 0"),
        ({"min": 0, "max": "much"}, "'much' is not a number"),
        ({"max": 1}, "min and max"),
        ({"min": 0, "max": 1, "setp": 1}, "did you mean step?"),
        ({"distribution": "normal", "mean": 0, "sd": 0}, "sd must be above 0"),
        ({"distribution": "normal", "min": 0}, "normal has no min"),
        ({"values": ["hf_abcdefghijklmnopqrstuvwxyz"]}, "a secret would be written down"),
        ({"values": [[1, 2]]}, "not a single value"),
    ],
)
def test_a_range_that_is_none_is_told_with_its_parameter(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        axis(**given)
    assert words in caught.value.message
    assert caught.value.message.startswith("f: parameters: x: ")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"comand": "x"}, "did you mean command?"),
        ({"method": "gird"}, "did you mean grid?"),
        ({"method": "random"}, "trials: how many is missing"),
        ({"method": "tpe", "trials": 3}, "needs the name of what trials report"),
        ({"early_stopping": "asha"}, "needs the name of what trials report"),
        ({"early_stopping": {"method": "asha", "reduction": 1}, "metric": "a"}, "from 2 on"),
        ({"early_stopping": {"method": "median", "reduction": 2}, "metric": "a"}, "unknown key 'reduction'"),
        ({"trials": 0}, "a whole number from 1"),
        ({"retries": -1}, "a whole number from 0"),
        ({"run": {"gpu": 1}}, "unknown key 'gpu'"),
        ({"command": ""}, "what to run is missing"),
        ({"command": "a 'b"}, "No closing quotation"),
        ({"parameters": {"a.b": [1], "a_b": [2]}}, "are one variable"),
        ({"parameters": {"a b": [1]}}, "no name"),
        ({"parameters": {"x": {"min": 0.0, "max": 1.0}}}, "needs step or count"),
        ({"method": "tpe", "trials": 1, "metric": "a",
          "parameters": {"x": {"distribution": "normal", "mean": 0, "sd": 1}}}, "tpe has no normal"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_told_with_its_key(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        parsed(**given)
    assert words in caught.value.message


def test_a_large_grid_is_confirmed_or_sampled() -> None:
    large = parsed(parameters={"x": {"min": 1, "max": 100}, "y": {"min": 1, "max": 100}})
    with pytest.raises(ExperimentError, match="10000 points"):
        plan.need_reasonable(large, confirmed=False)
    plan.need_reasonable(large, confirmed=True)
    some = parsed(trials=50, parameters={"x": {"min": 1, "max": 100}, "y": {"min": 1, "max": 100}})
    plan.need_reasonable(some, confirmed=False)
    points = some.points()
    assert points is not None
    assert len({tuple(point.values()) for point in points}) == 50
    everything = set(map(str, space.grid(some.parameters)))
    assert {str(point) for point in points} <= everything


def test_random_draws_stay_in_their_ranges_and_repeat_by_seed() -> None:
    parameters = space.parse(
        {
            "a": {"min": 1e-5, "max": 0.1, "log": True}, "b": {"min": 1, "max": 3}, "c": ["u", "v"],
            "d": {"min": 0, "max": 1, "step": 0.25}, "e": {"min": 1, "max": 64, "log": True},
            "f": {"distribution": "log_normal", "mean": 0, "sd": 1},
        },
        "f",
    )  # fmt: skip
    drawn = [space.draw(parameters, 7, index) for index in range(1, 400)]
    assert drawn == [space.draw(parameters, 7, index) for index in range(1, 400)]
    assert all(1e-5 <= point["a"] <= 0.1 for point in drawn)  # type: ignore[operator]  # numbers
    assert {point["b"] for point in drawn} == {1, 2, 3}
    assert {point["c"] for point in drawn} == {"u", "v"}
    assert {point["d"] for point in drawn} == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert {type(point["e"]) for point in drawn} == {int}
    assert all(1 <= point["e"] <= 64 for point in drawn)  # type: ignore[operator]  # numbers


def test_parameters_stand_in_their_place_or_at_the_end() -> None:
    placed = parsed(command="train.py --opt={x},{y} {z}", parameters={"x": [1], "lr": [0.1]})
    assert placed.command_of({"x": 1, "lr": 0.1}) == ["train.py", "--opt=1,{y}", "{z}", "--lr=0.1"]
    assert parsed(arguments="hydra").command_of({"x": True}) == ["train.py", "x=true"]
    assert plan.from_mapping(json.loads(json.dumps(plan.as_mapping(placed)))) == placed


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("method", ["asha", "median"])
def test_trials_stop_where_optunas_pruners_stop_them(method: str, maximize: bool) -> None:
    """Trials report in turns; the same sequence goes through Optuna's pruner and ours."""
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    stopped = 0
    for seed in range(20):
        chance = random.Random(seed)
        if method == "asha":
            policy = Policy(method="asha", min_steps=chance.randint(1, 2), reduction=chance.randint(2, 4))
            pruner = optuna.pruners.SuccessiveHalvingPruner(
                min_resource=policy.min_steps, reduction_factor=policy.reduction
            )
        else:
            policy = Policy(method="median", startup_trials=chance.randint(1, 4), warmup_steps=chance.randint(0, 3))
            pruner = optuna.pruners.MedianPruner(
                n_startup_trials=policy.startup_trials, n_warmup_steps=policy.warmup_steps
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study = optuna.create_study(pruner=pruner, direction="maximize" if maximize else "minimize")
        theirs = [study.ask() for _ in range(16)]
        ours: list[dict[int, float]] = [{} for _ in theirs]
        complete: set[int] = set()
        alive = set(range(16))
        while alive:
            place = chance.choice(sorted(alive)[:4])
            step = len(ours[place]) + 1
            ours[place][step] = value = chance.random()
            theirs[place].report(value, step)
            peers = [Peer(reports, other in complete) for other, reports in enumerate(ours) if other != place]
            why = stopping.stop(policy, ours[place], peers, maximize=maximize, judged=step - 1)
            assert bool(why) == theirs[place].should_prune(), (seed, place, step, why)
            if why:
                stopped += 1
                study.tell(theirs[place], state=optuna.trial.TrialState.PRUNED)
            elif step == 12:
                complete.add(place)
                study.tell(theirs[place], value)
            else:
                continue
            alive.remove(place)
    assert stopped > 20


def test_a_metric_that_is_not_a_number_stops_a_trial() -> None:
    policy = Policy(method="asha", min_steps=1, reduction=2)
    assert "not a number" in stopping.stop(policy, {1: float("nan")}, [], maximize=False)
    assert stopping.stop(policy, {}, [], maximize=False) == ""


def files(directory: Path, events: list[dict[str, Any]], metrics: str = "", point: str = "") -> trials.Trial:
    folder = directory / "s.1"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "metrics.jsonl").write_text(metrics)
    if point:
        (folder / "params.json").write_text(point)
    return trials.read(directory, "s", 1, "loss")


def test_a_trial_is_what_its_newest_life_says(tmp_path: Path) -> None:
    start, end = {"event": "started", "at": 1.0, "restart": 0}, {"event": "ended", "at": 2.0, "restart": 0, "status": 1}
    for name, events, state in (
        ("a", [], "WAITING"),
        ("b", [start], "RUNNING"),
        ("c", [start, end], "FAILED"),
        ("d", [start, end, {**start, "restart": 1}], "RUNNING"),
        ("e", [start, {"event": "pruned", "at": 1.5, "restart": 0}, {**end, "status": 0}], "PRUNED"),
        ("f", [start, {**end, "status": 0}], "COMPLETED"),
    ):
        (tmp_path / name).mkdir()
        assert files(tmp_path / name, events).state == state


def test_lines_that_are_damaged_cost_themselves_alone(tmp_path: Path) -> None:
    metrics = '{"step": 1, "loss": 2}\n[1]\n{"step": 2, "los\n{"loss": 1.5}\n{"step": 9, "acc": 1}\n{"step": 3, "lo'
    trial = files(tmp_path, [], metrics, '{"x": 1')
    assert (trial.reports, trial.value, trial.parameters) == ({1: 2.0, 2: 1.5}, 1.5, {})
    # The program is killed at the end of a buffer, and its next life goes on in the same line.
    again = files(tmp_path / "again", [], '{"step": 1, "lo{"step": 2, "loss": 4}\n')
    assert again.reports == {2: 4.0}


def test_tpe_draws_inside_the_space_and_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    wanted = parsed(
        method="tpe", trials=30, metric="loss",
        parameters={"x": {"min": 0.0, "max": 1.0}, "n": {"min": 1, "max": 9, "step": 3}, "k": ["a", True, None]},
    )  # fmt: skip
    done: list[trials.Trial] = []
    for index in range(1, 31):
        point = sampler.ask(wanted, done, index)
        assert point == sampler.ask(wanted, done, index)
        assert json.loads(json.dumps(point)) == point
        assert point["n"] in (1, 4, 7)
        loss = (float(point["x"]) - 0.5) ** 2  # type: ignore[arg-type]  # a number
        state = ("COMPLETED", "PRUNED", "FAILED", "RUNNING")[index % 4 if index % 3 == 0 else 0]
        value = loss if state == "COMPLETED" else None
        done.append(
            trials.Trial(index=index, directory=tmp_path, state=state, parameters=point, reports={1: loss}, value=value)
        )
    late = [abs(float(trial.parameters["x"]) - 0.5) for trial in done[-10:]]
    assert sum(late) / 10 < 0.25


def test_words_of_a_multirun() -> None:
    assert multirun.values("1,[2,3],'a,b',f(4,5)") == ["1", "[2,3]", "'a,b'", "f(4,5)"]
    assert multirun.values("choice(a,b)") == ["a", "b"]
    assert multirun.values("range(1,4)") == ["1", "2", "3"]
    with pytest.raises(ExperimentError, match="NAME=A,B"):
        multirun.plan(["train.py"], ["x"])
    with pytest.raises(ExperimentError, match="occurs twice"):
        multirun.plan(["train.py"], ["x=1", "x=2"])


def test_only_a_program_that_imports_hydra_has_hydras_m(tmp_path: Path) -> None:
    (tmp_path / "h.py").write_text("import hydra\n")
    (tmp_path / "p.py").write_text("import argparse\n")
    found, said = multirun.of_hydra(["python", "h.py", "-m", "lr=1,2", "x=5"], tmp_path)
    assert found is not None
    assert found.words() == ("python", "h.py", "x=5", "lr={lr}")
    assert "--no-sweep" in said
    assert multirun.of_hydra(["python", "p.py", "-m", "lr=1,2"], tmp_path)[0] is None
    assert "spritz run -m lr=1,2" in multirun.of_hydra(["python", "p.py", "-m", "lr=1,2"], tmp_path)[1]
    # Python's own -m, a single value, a sweeper of Hydra's own
    for words in (["python", "-m", "h.py", "lr=1,2"], ["python", "h.py", "-m", "lr=1"], ["python", "h.py", "lr=1,2"]):
        assert multirun.of_hydra(words, tmp_path) == (None, "")
    assert multirun.of_hydra(["python", "h.py", "-m", "a=1,2", "b=interval(0,1)"], tmp_path)[0] is None


def test_numbers_of_trials_as_sbatch_reads_them() -> None:
    assert queue.ranges([1, 2, 3, 7, 9, 10]) == "1-3,7,9-10"
    assert queue.ranges([4]) == "4"


def test_axes_in_the_terminal_order_numbers_and_words() -> None:
    assert report.positions([1, 10, 100], log=True)[0] == [0, 24, 47]
    assert report.positions(["b", "a"], log=False) == ([47, 0], "a", "b")
    assert report.positions([3, 3], log=False)[0] == [0, 0]


def test_trials_that_go_on_have_the_secret_variables_of_the_options_or_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("API_KEY", "DB"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "sweeps").mkdir()
    sweep = sweeps.create(tmp_path, "s", 1.0, "me", parsed(), 2)
    options = {"env": {"API_KEY": MASK, "DB": f"postgres://u:{MASK}@h/db", "LR": "1"}}
    first = Run(name="s-1.1", user="me", created_at=1.0, command=["x"], options=options)
    with pytest.raises(ExperimentError, match="API_KEY, DB of s-1 was secret"):
        queue._secret_values(sweep, first)
    (tmp_path / "spritz.yaml").write_text("run: {env: {API_KEY: of-the-file, DB: 'postgres://u:pw@h/db'}}\n")
    monkeypatch.setenv("API_KEY", "of-the-shell")
    assert queue._secret_values(sweep, first) == {"API_KEY": "of-the-shell", "DB": "postgres://u:pw@h/db"}
