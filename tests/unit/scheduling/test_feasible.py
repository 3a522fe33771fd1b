"""Could a job ever run?"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.job.record import Dependency, EndSignal, JobSpec, ResourceLimit
from spritz.model.states import NodeFlag, NodeState
from spritz.scheduling.explain.nodes import lacking
from spritz.scheduling.placement import place as place_module
from spritz.scheduling.placement.select import Candidate, Portion, select
from spritz.scheduling.plan import feasible
from spritz.scheduling.plan.feasible import UNSEEN, Checks, check_request
from tests.fuzz.guard import guard
from tests.unit.scheduling.site import Site, gpus, node, partition, spec


def two_nodes() -> Site:
    nodes = [node(name, 4, gres=[gpus(2)]) for name in ("n1", "n2")]
    return Site(nodes, [partition("p", nodes, default=True), partition("q", nodes[:1])])


def test_what_fits_an_empty_cluster_is_accepted_even_if_it_is_busy_or_down() -> None:
    site = two_nodes()
    site.submit(spec(8))
    site.cycle()
    site.set_node("n1", NodeState.DOWN, NodeFlag.NOT_RESPONDING)
    assert check_request(spec(8), site.projection.snapshot(site.now)) is None


def test_what_no_set_of_nodes_could_carry_is_refused() -> None:
    snapshot = two_nodes().projection.snapshot(0.0)
    for impossible in (spec(9), spec(nodes=3), spec(gpus=5), spec(1, nodes=1, gpus=3), spec(features="x")):
        assert check_request(impossible, snapshot) == ("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", "")


def test_one_partition_that_fits_is_enough() -> None:
    snapshot = two_nodes().projection.snapshot(0.0)
    assert check_request(spec(8, partitions=("q", "p")), snapshot) is None
    assert check_request(spec(8, partitions=("q",)), snapshot) is not None


def test_options_that_are_not_built_are_refused_by_name() -> None:
    snapshot = two_nodes().projection.snapshot(0.0)
    for request, word in (
        (spec(core_spec=1), "--core-spec"),
        (spec(gres_flags=("no-such-flag",)), "--gres-flags=no-such-flag"),
    ):
        refusal = check_request(request, snapshot)
        assert refusal is not None
        assert refusal[0] == "ESLURM_NOT_SUPPORTED"
        assert word in refusal[1]


def other(name: str) -> object:
    """Another value of this field of a JobSpec than it has when not given."""
    special = {
        "limits": (ResourceLimit("NOFILE", 7),),
        "dependencies": (Dependency(kind="singleton"),),
        "end_signal": EndSignal(signal=9),
        "array": "0-9",
    }
    if name in special:
        return special[name]
    usual = getattr(JobSpec(), name)
    if isinstance(usual, bool) or name == "requeue":
        return True
    if isinstance(usual, tuple):
        return ("x",)
    return "x" if isinstance(usual, str) else 7


def test_what_is_left_out_of_the_question_has_no_part_in_the_answer() -> None:
    """Or one request would be answered with another one's answer."""
    snapshot = two_nodes().projection.snapshot(0.0)
    plain = spec(8, gpus=2)
    for name in UNSEEN:
        assert feasible._requests(replace(plain, **{name: other(name)}), snapshot) == feasible._requests(
            plain, snapshot
        )


def test_a_request_is_looked_at_once_whatever_its_name() -> None:
    site = two_nodes()
    checks = Checks(site.projection, lacking)
    assert checks.check(spec(8, name="a"), site.now) is None
    assert len(checks) == 1
    assert checks.check(spec(8, name="b", work_dir="/tmp"), site.now) is None
    assert len(checks) == 1
    assert checks.check(spec(9), site.now) is not None
    refusal = checks.check(spec(9), site.now)
    assert refusal is not None
    assert refusal[0] == "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"
    assert checks.check(spec(9), site.now) is refusal


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (spec(1, nodes=1, gpus=3), "n[1-2]: not enough GPUs (3 needed, at most 2 there)"),
        (spec(features="x"), "n[1-2]: without the features x"),
        (spec(nodes=3), "2 nodes of partition p could hold a part of it, 3 needed"),
        (spec(9), "2 nodes of partition p could hold 8 of 9 tasks"),
        (spec(gpus=5), "2 nodes of partition p could hold 4 of 5 GPUs"),
        (
            spec(8, nodes=2, nodes_max=2, tasks_per_node=4, cpus_per_task=2),
            "n[1-2]: not enough CPUs (8 needed, at most 4 there)",
        ),
        (spec(1, exclude=("n1", "n2")), "n[1-2]: excluded by the job (--exclude)"),
        (
            spec(2, nodes=2, exclude=("n1",)),
            "1 node of partition p could hold a part of it, 2 needed; n1: excluded by the job (--exclude)",
        ),
    ],
)
def test_a_refusal_says_what_the_nodes_lack(request_: JobSpec, words: str) -> None:
    site = two_nodes()
    assert Checks(site.projection, lacking).check(request_, site.now) == (
        "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE",
        words,
    )


def test_an_answer_is_forgotten_when_nodes_change() -> None:
    site = two_nodes()
    checks = Checks(site.projection, lacking)
    assert checks.check(spec(features="x"), site.now) is not None
    known = site.projection.nodes["n1"]
    site.projection.update_node(replace(known, config=replace(known.config, features=("x",))))
    assert checks.check(spec(features="x"), site.now) is None


@pytest.mark.parametrize("field", ["cpus_per_task", "cpus_per_node_min", "tasks_per_core", "threads_per_core"])
def test_sizes_below_zero_from_before_they_were_refused_do_not_hang(field: str) -> None:
    """A job on two sockets with --overcommit and fewer than no CPUs a task was dealt them for ever."""
    site = Site([node("n1", 16, sockets=2)])
    request = replace(spec(overcommit=True, cpus_per_task=-(2**63)), **{field: -(2**63)})
    with guard(), suppress(ZeroDivisionError):
        check_request(request, site.projection.snapshot(0.0))


def test_nodes_that_hold_less_than_counts_promise_are_found_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With enforce-binding only CPUs next to the GPUs serve; a choice of nodes for each node found out was 10 s of
    slurmctld on 1000 nodes."""
    nodes = [
        node(f"n{i}", 16, sockets=2, gres=[gpus(2, cores="0-3"), gpus(2, first=2, cores="8-11")]) for i in range(30)
    ]
    site = Site(nodes)
    choices: list[int] = []

    def counted(candidates: list[Candidate], *rest: Any) -> list[Portion] | None:
        choices.append(len(candidates))
        return select(candidates, *rest)

    monkeypatch.setattr(place_module, "select", counted)
    bound = replace(spec(4 * 30, gpus_per_node=1), gres_flags=("enforce-binding",))
    snapshot = site.projection.snapshot(0.0)
    assert check_request(bound, snapshot) is None
    assert check_request(replace(bound, tasks=4 * 30 + 1), snapshot) is not None
    assert len(choices) < 6
