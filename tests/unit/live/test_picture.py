"""The picture of a cluster: what updates change, what is chosen of it, and which job holds which GPU."""

from __future__ import annotations

import pytest

from spritz.live.choice import Choice, chosen
from spritz.live.picture import Picture, Update
from spritz.live.snapshot import facts, lines
from spritz.tui.views import HistoryView, occupancy
from tests.unit.live.rows import job, node, running


def _picture() -> Picture:
    picture = Picture()
    jobs = (
        running(1, ("n1", 0b1111), name="train"),
        running(2, ("n1", 0b110000), user="bob"),
        job(3),
        job(4, user="bob"),
    )
    picture.apply(
        Update(now=1200.0, cluster="c", whole=True, jobs=jobs, nodes=(node("n1", used=6), node("n2")), nodes_whole=True)
    )
    return picture


def test_an_update_changes_what_it_touched_and_no_more() -> None:
    picture = _picture()
    picture.apply(
        Update(now=1300.0, jobs=(running(3, ("n2", 1)),), touched=frozenset((2, 3)), nodes=(node("n2", used=1),))
    )
    assert sorted(picture.jobs) == [1, 3, 4]
    assert picture.jobs[3].state_code == "R"
    assert picture.nodes["n2"].gpus_used_count == 1
    assert list(picture.nodes) == ["n1", "n2"]


def test_a_controller_that_is_away_leaves_the_picture_as_it_was() -> None:
    picture = _picture()
    picture.apply(Update(problem="Unable to contact slurm controller (connect failure)"))
    assert len(picture.jobs) == 4
    assert picture.problem
    picture.apply(Update(now=1300.0))
    assert not picture.problem


def test_each_gpu_has_its_job() -> None:
    picture = _picture()
    holders = picture.holders()["n1"]
    assert {index: held.id for index, held in holders.items()} == {0: 1, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2}
    strip, legend = occupancy(picture.nodes["n1"], holders)
    assert strip == "AAAABB··"
    assert legend == "A 1 alice train, B 2 bob job2"
    assert occupancy(node("n3", used=2, states=("IDLE", "DRAIN")), {})[0] == "##xxxxxx"


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", [1, 2, 3, 4]),
        ("user:bob", [2, 4]),
        ("state:pd", [3, 4]),
        ("train", [1]),
        ("-user:bob state:running", [1]),
        ("node:n1 job2", [2]),
        ("reason:resour", [3, 4]),
    ],
)
def test_filters(text: str, ids: list[int]) -> None:
    found = chosen(_picture().jobs.values(), Choice(text), "id", 1200.0)
    assert [one.id for one in found] == ids


def test_an_unknown_key_of_a_filter_is_named() -> None:
    with pytest.raises(ValueError, match="colour: id, user, account"):
        Choice("colour:red")


def test_orders() -> None:
    jobs = [job(1, priority=5), job(2, priority=9), running(3, ("n1", 3)), job(4, state="COMPLETED", ended_at=1100.0)]
    assert [one.id for one in chosen(jobs, Choice(), "queue", 1200.0)] == [3, 2, 1]
    assert [one.id for one in chosen(jobs, Choice(ended=True), "queue", 1200.0)] == [3, 2, 1, 4]
    assert [one.id for one in chosen(jobs, Choice(), "gpus", 1200.0, backwards=True)][-1] == 3


def test_what_is_pending_of_an_array_is_named_without_its_running_tasks() -> None:
    rest = job(12, array={"pending": "f0", "limit": 2})
    assert (rest.label, rest.target) == ("12_[4-7%2]", "12_[4-7]")


def test_time_in_which_a_job_was_suspended_does_not_count() -> None:
    assert running(1, suspended_seconds=100.0).used_seconds(1400.0) == 200
    stopped = running(1, suspended_at=1300.0)._replace(state="SUSPENDED")
    assert stopped.used_seconds(9000.0) == 200


def test_a_snapshot_is_no_wider_than_asked() -> None:
    picture = _picture()
    picture.apply(Update(now=1300.0, jobs=(job(5, name="x" * 500 + "\x1b[31m\u202eevil"),), touched=frozenset((5,))))
    jobs = list(picture.jobs.values())
    text = lines(picture, jobs, [("n1", "AAAABB··", "A 1 alice train")], 80)
    assert all(len(line) <= 80 and line.isprintable() for line in text)
    told = facts(picture, jobs)
    assert told["sums"]["gpus_used"] == 6
    assert told["nodes"][0]["gpus"][4] == {"index": 4, "type": "h100", "busy_percent": None, "job": "2", "user": "bob"}


def test_names_with_bars_in_accounting() -> None:
    view = HistoryView()
    view.take("7|alice|a|b|FAILED|1:0|00:01:00|2026-01-01T00:00:00|2026-01-01T00:01:00|1|gpu|cpu=1\nshort|line\n")
    (row,) = view.rows()
    assert (row.job_name, row.state, row.tres) == ("a|b", "FAILED", "cpu=1")
