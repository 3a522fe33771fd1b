"""Guaranteed, used, borrowed, lent, in figures and in words."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.scheduling.test_explain import told as explained
from tests.unit.scheduling.test_guarantees import later, set_guarantees, site, submit
from tests.unit.scheduling.test_preemption import leave, run, states, victims

from spritz.cli.local.questions.shares import text_lines
from spritz.core.shares import beyond_cluster, share_out, shares
from spritz.model.accounting.shares import Shares
from spritz.model.job.record import Sharing


def figures(found: Shares) -> dict[str, tuple[int | None, int, int, int]]:
    return {row.account: (row.guaranteed, row.used, row.borrowed, row.lent) for row in found.rows}


def test_order_of_borrowers_that_give_back() -> None:
    here = site({"ai": "gres/gpu=4", "vision": "gres/gpu=2", "bio": "gres/gpu=2"}, nodes=2, after={"ai": 10})
    submit(here, "vision", 1)
    run(here)
    later(here)
    guests = [submit(here, "guests", 3), submit(here, "guests", 2)]
    run(here)
    later(here)
    mine = submit(here, "bio", 1)
    run(here)
    waiting = submit(here, "vision", 2)
    found = shares(here.machine.state, here.now)
    assert figures(found) == {
        "ai": (4, 1, 0, 2),
        "vision": (2, 1, 0, 0),
        "bio": (2, 1, 0, 1),
        "guests": (None, 5, 3, 0),
    }, "of four unused GPUs one is idle"
    [total] = found.totals
    assert (total.total, total.guaranteed, total.used, total.lent) == (8, 6, 7, 3)
    assert [(one.job, one.guarantee) for one in found.first] == [(str(waiting), "ai")], "beyond vision's, within ai's"
    assert [giver.job for giver in found.givers] == [str(number) for number in (guests[1], guests[0])]
    assert str(mine) not in [giver.job for giver in found.givers]
    text = "\n".join(text_lines(found))
    assert "gres/gpu: 8 in the cluster, 7 in use; 6 guaranteed to accounts, 2 open to all; 3 lent" in text
    assert f"{waiting} of vision, gres/gpu=2, in the share of ai" in text


def test_a_job_that_wants_whole_nodes_wants_their_gpus() -> None:
    """--exclusive without --gpus: what counts once it runs counts while it waits (docs/decisions/0036)."""
    here = site({"ai": "gres/gpu=4"}, nodes=2)
    guests = [submit(here, "guests", 4), submit(here, "guests", 4)]
    run(here)
    later(here)
    alone: dict[str, Any] = {"gpus_per_node": 0, "sharing": Sharing.EXCLUSIVE}
    mine = submit(here, "vision", **alone)
    found = shares(here.machine.state, here.now)
    assert [(row.waiting, row.waiting_within) for row in found.rows if row.account == "ai"] == [(1, 1)]
    assert victims(run(here)) == [[guests[1]]]
    leave(here)
    run(here)
    assert states(here, mine) == ["RUNNING"]
    assert figures(shares(here.machine.state, here.now))["ai"] == (4, 4, 0, 0)


def test_explain_says_that_a_job_exceeds_its_guarantee() -> None:
    here = site({"ai": "gres/gpu=2"})
    submit(here, "guests", 4)
    run(here)
    larger = submit(here, "vision", 3)
    assert run(here).preemptions == ()
    words = "It exceeds the guarantee of account ai, so nothing is preempted for it."
    assert words in explained(here, larger).summary
    guest = submit(here, "guests", 1)
    run(here)
    assert words not in explained(here, guest).summary


def test_a_cluster_without_guarantees_says_how_to_set_one() -> None:
    here = site({})
    assert "sacctmgr modify account" in text_lines(shares(here.machine.state, here.now))[1]


def test_guarantees_beyond_the_cluster_are_reported() -> None:
    here = site({"ai": "gres/gpu=4,node=1", "bio": "gres/gpu=1"})
    assert beyond_cluster(here.machine.state) == [("gres/gpu", 5, 4)]
    assert "Guarantees exceed the cluster by 1" in "\n".join(text_lines(shares(here.machine.state, here.now)))
    set_guarantees(here, {"ai": "gres/gpu=4", "vision": "gres/gpu=4"}, {})
    assert beyond_cluster(here.machine.state) == [], "what is below another counts with it"


def test_jobs_that_the_caller_must_not_see_are_not_named() -> None:
    here = site({"ai": "gres/gpu=2"})
    submit(here, "guests", 4)
    run(here)
    submit(here, "vision", 1)
    found = shares(here.machine.state, here.now, lambda job: job.spec.account == "vision")
    assert (len(found.first), found.givers) == (1, [])


@given(weights=st.lists(st.integers(0, 50), min_size=1, max_size=8), part=st.floats(0, 1))
def test_what_is_shared_out_is_whole_and_no_more_than_each_has(weights: list[int], part: float) -> None:
    total = int(sum(weights) * part)
    found = share_out(total, weights)
    assert sum(found) == total
    assert all(0 <= one <= most for one, most in zip(found, weights, strict=True))
