"""What users were told survives kills, losses of power and disks that fail: the real controller and journal."""

from __future__ import annotations

import pytest

from spritz_testing.daemons.history import Injected
from tests.simulation.daemons.apart import apart
from tests.simulation.daemons.submitters import Submitters

#: problems, counts, story
Told = tuple[list[str], dict[str, int], list[str]]


def told(run: Submitters, problems: list[str]) -> Told:
    run.close()
    return problems, run.world.counts, run.story()


def killed_while_submitting(seed: int, kinds: tuple[str, ...], crashes: int) -> Told:
    """Jobs submitted through crashes, some of which come while the one before is being recovered from."""
    run = Submitters(seed)
    users = run.begin(users=4, jobs=40, pause=8.0)
    for _ in range(crashes):
        if run.random.random() < 0.7:
            run.world.run_until(lambda: run.unit.is_running, 100.0)
            run.world.run(run.random.uniform(0.0, 12.0))
        crash(run, run.random.choice(kinds))
    run.settle(users)
    problems = run.problems() + run.other_problems(users)
    problems += [repr(error) for _, _, error in run.unit.ends if error is not None]
    return told(run, problems)


def crash(run: Submitters, kind: str) -> None:
    """Now, or inside one of the next operations on the disk."""
    if kind == "kill now":
        run.unit.kill()
    elif kind == "power now":
        run.disk.lose_power()
    else:
        run.disk.crash(kind, run.random.choice((3, 10, 40)) + run.random.randrange(3))
        run.world.run_until(lambda: not run.unit.is_running, 60.0)


@pytest.mark.parametrize(
    "kinds",
    [
        ("kill", "kill now", "power", "power now"),
        pytest.param(("kill now",), marks=pytest.mark.slow),
        pytest.param(("kill", "kill now"), marks=pytest.mark.slow),
        pytest.param(("power", "power now"), marks=pytest.mark.slow),
        pytest.param(("power",), marks=pytest.mark.slow),
    ],
)
def test_acknowledged_jobs_and_scripts_survive(kinds: tuple[str, ...]) -> None:
    problems, counts, _ = apart(killed_while_submitting, 1, kinds, 30)
    assert problems == []
    assert sum(count for name, count in counts.items() if name.startswith("fault")) >= 10 or kinds == ("kill now",)
    assert counts["child image"] >= 1
    assert counts["replay compared"] >= 10


@pytest.mark.slow
def test_the_same_seed_tells_the_same_story() -> None:
    first = apart(killed_while_submitting, 5, ("kill", "power", "kill now"), 6)
    assert apart(killed_while_submitting, 5, ("kill", "power", "kill now"), 6) == first


def submitting_on_a_bad_disk(seed: int, kinds: tuple[str, ...], faults: int, power: bool) -> Told:
    """Jobs submitted while the disk fails now and then, and (`power`) the machine loses its power."""
    run = Submitters(seed)
    users = run.begin(users=4, jobs=30, pause=20.0)
    for _ in range(faults):
        run.world.run(run.random.uniform(1.0, 40.0))
        seconds = run.random.choice((1.0, 10.0, 60.0))
        run.disk.fail(run.random.choice(kinds), seconds, run.random.choice((1, 3, 1_000_000)))
        if power and run.random.random() < 0.5:
            run.world.run(run.random.uniform(0.0, 20.0))
            run.disk.lose_power()
    run.settle(users)
    problems = run.problems() + run.other_problems(users)
    problems += run.operator.refusals
    return told(run, problems)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fsync", "full", "read-only", "slow"])
def test_a_disk_that_fails_loses_nothing_acknowledged(kind: str) -> None:
    problems, counts, _ = apart(submitting_on_a_bad_disk, 1, (kind,), 12, False)
    assert problems == []
    assert counts[f"disk {kind}"] >= 5


@pytest.mark.slow
def test_what_a_failed_sync_left_in_memory_is_not_built_upon() -> None:
    """A power loss after a sync that failed, and after a start that found what it had written in the page cache."""
    for seed in range(1, 5):
        problems, _, _ = apart(submitting_on_a_bad_disk, seed, ("fsync",), 12, True)
        assert problems == [], seed


def stopped_by_a_failed_sync(seed: int) -> tuple[int, int, list[str]]:
    """How many jobs were acknowledged when the sync failed, and how many an hour later, with the disk as it was."""
    run = Submitters(seed)
    run.begin(users=3, jobs=30, pause=5.0)
    run.world.run(30.0)
    run.disk.fail("fsync", 1e9)
    assert run.world.run_until(lambda: not run.unit.is_running, 60.0)
    before = len(run.acknowledged)
    run.world.run(600.0)
    return before, len(run.acknowledged), run.story()


def test_a_controller_whose_syncs_fail_stops_and_acknowledges_nothing() -> None:
    before, after, story = apart(stopped_by_a_failed_sync, 1)
    assert before == after > 0
    assert any("journal.failed" in line for line in story)


def flipped(seed: int, what: str, answer: str) -> tuple[Told, list[str]]:
    """Jobs submitted, a bit flipped while the controller is down, an operator if it is refused; and the refusals."""
    run = Submitters(seed)
    users = run.begin(users=4, jobs=30, pause=8.0)
    run.world.run(run.random.uniform(10.0, 60.0))
    run.operator.copy_state()
    run.operator.answer = answer
    run.world.run(run.random.uniform(10.0, 60.0))
    run.operator.flip(what)
    run.unit.kill()
    run.settle(users)
    restored = [entry for entry in run.site.history.entries if isinstance(entry, Injected)]
    problems = run.problems(excused=restored)
    return told(run, problems + run.other_problems(users)), run.operator.refusals


@pytest.mark.slow
@pytest.mark.parametrize("what", ["group", "image", "blob", "mark", "log"])
@pytest.mark.parametrize("answer", ["-i", "copy"])
def test_a_flipped_bit_is_refused_or_repaired_and_never_passed_over(what: str, answer: str) -> None:
    """Of a refusal an operator learns which events are lost; what was acknowledged before them is there."""
    refusals: list[str] = []
    for seed in range(1, 6):
        (problems, counts, _), refused = apart(flipped, seed, what, answer)
        assert problems == [], seed
        assert counts.get(f"restored by {answer}", 0) == len(refused)
        refusals += refused
    if what in ("group", "log"):
        assert refusals


def resubmitting(seed: int) -> Told:
    """The same few scripts again and again, while their old jobs are purged and a slow disk removes them."""
    run = Submitters(seed)
    run.pool = [f"#!/bin/sh\n# script {number}\n".encode() * 50 for number in range(40)]
    users = run.begin(users=4, jobs=100, pause=60.0)
    for _ in range(100):
        run.world.run(run.random.uniform(5.0, 60.0))
        run.cancel_some(0.9)
        if run.random.random() < 0.7:
            run.disk.fail("slow", run.random.uniform(10.0, 60.0))
        if run.random.random() < 0.05:
            crash(run, run.random.choice(("kill", "kill now", "power")))
    run.settle(users)
    return told(run, run.problems() + run.other_problems(users))


@pytest.mark.slow
def test_a_script_that_comes_back_while_it_is_removed_is_kept() -> None:
    problems, counts, _ = apart(resubmitting, 1)
    assert problems == []
    assert counts["fault disk slow"] > 5
