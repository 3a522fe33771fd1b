"""Single words of SchedulerParameters and SelectTypeParameters. Source: slurm.conf(5)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from spritz.model.events.cluster import NodeUpdated
from spritz.model.resources import GresCapacity, GresRequest
from spritz.scheduling.plan.feasible import check_request
from spritz.scheduling.view.parameters import parameters_of
from spritz.scheduling.view.resolve import resolve
from spritz_testing.builders import World
from tests.unit.scheduling.site import SETTINGS, Site, devices, gpus, node, spec
from tests.unit.scheduling.test_explain import told as explanation


def site_of(*words: str, nodes: int = 4, **fields: Any) -> Site:
    """Nodes of eight CPUs and two GPUs."""
    pairs = tuple((word.partition("=")[0], word.partition("=")[2]) for word in words)
    lines = [gpus(2, cores="0-3"), GresCapacity(name="shard", count=8, per_device=4)]
    made = [node(f"n{i}", 8, gres=lines) for i in range(1, nodes + 1)]
    return Site(made, settings=replace(SETTINGS, scheduler_parameters=pairs, **fields))


def test_cycles_may_be_made_only_for_news() -> None:
    """slurm.conf(5) bf_interval, sched_interval: -1 turns the loop off."""
    policy = parameters_of(replace(SETTINGS, scheduler_parameters=(("bf_interval", "-1"), ("sched_interval", "-1"))))
    assert min(policy.full_interval_seconds, policy.quick_interval_seconds) > 365 * 86_400


def test_serial_jobs_go_to_the_end() -> None:
    site = site_of("pack_serial_at_end")
    serial, parallel = site.submit(spec(1)), site.submit(spec(2, 1))
    found = site.cycle()
    assert found[serial].names == ("n4",)
    assert found[parallel].names == ("n1",)


def test_a_quick_cycle_starts_no_more_than_it_may() -> None:
    site = site_of("sched_max_job_start=2")
    for _ in range(5):
        site.submit(spec(1))
    plan = site.cycle_plan(100)
    assert len(plan.starts) == 2
    assert not plan.complete
    assert len(site.cycle()) == 3


def test_starts_are_planned_for_a_limited_number_of_jobs_of_a_partition() -> None:
    assert parameters_of(site_of("bf_job_part_count_reserve=3").settings).planned_per_partition == 3
    both = site_of("bf_job_part_count_reserve=3", "bf_max_job_part=2")
    assert parameters_of(both.settings).planned_per_partition == 2
    site = site_of("bf_job_part_count_reserve=2", nodes=1)
    for _ in range(5):
        site.submit(spec(8, 1))
    site.cycle()
    assert sum(len(promises) for promises in site.projection.ledger.by_request.values()) == 2


def test_gpu_binding_is_enforced_unless_the_job_declines_it() -> None:
    home = site_of().partitions[0]
    settings = replace(SETTINGS, enforce_gres_binding=True)
    assert resolve(spec(1, gpus_per_node=1), home, settings).enforce_binding
    assert not resolve(spec(1), home, settings).enforce_binding
    assert not resolve(spec(1, gpus_per_node=1, gres_flags=("disable-binding",)), home, settings).enforce_binding
    assert not resolve(spec(1, gpus_per_node=1), home, SETTINGS).enforce_binding


def test_shares_are_taken_of_the_fullest_or_the_emptiest_gpu() -> None:
    share = spec(1, gres_per_node=(GresRequest("shard", "", 1),), node_list=("n1",))
    for wanted, fields in (([0, 0], {}), ([0, 1], {"least_loaded_shares": True})):
        site = site_of(**fields)
        taken = []
        for _ in range(2):
            job = site.submit(share)
            taken += devices(site.cycle()[job], "shard")["n1"]
        assert taken == wanted


def test_a_feature_that_no_node_has_may_be_asked_for_on_demand() -> None:
    asked = spec(1, features="later", partitions=("debug",))
    site = site_of("ignore_constraint_validation")
    assert check_request(asked, site.projection.snapshot(site.now)) is None
    strict = site_of()
    assert check_request(asked, strict.projection.snapshot(strict.now)) is not None
    job = site.submit(asked)
    assert job not in site.cycle()


def test_what_is_asked_for_is_not_validated_on_demand() -> None:
    words = (("ignore_constraint_validation", ""), ("ignore_prefer_validation", ""), ("allow_zero_lic", ""))
    lenient = World(settings=replace(SETTINGS, scheduler_parameters=words, licenses=(("fluent", 0),)))
    strict = World(settings=replace(SETTINGS, licenses=(("fluent", 0),)))
    asks: tuple[tuple[dict[str, Any], str], ...] = (
        ({"features": "later"}, "ESLURM_INVALID_FEATURE"),
        ({"prefer": "later"}, "ESLURM_INVALID_PREFER"),
        ({"licenses": "fluent:2"}, "ESLURM_INVALID_LICENSES"),
    )
    for asked, code in asks:
        assert lenient.submit(**asked)
        assert strict.submit_refused(**asked) == code
    assert lenient.submit_refused(licenses="other") == "ESLURM_INVALID_LICENSES"


def test_nodes_are_chosen_by_their_extra_data() -> None:
    """https://slurm.schedmd.com/extra_constraints.html; what nodes say may change any time."""
    site = site_of("extra_constraints")

    def says(name: str, text: str) -> None:
        site.apply(NodeUpdated(at=site.now, node=replace(site.machine.state.nodes[name], extra=text)))

    for number in range(1, 5):
        says(f"n{number}", f'{{"load": {number / 4}}}')
    wanted = spec(1, extra="(load<0.9&load>0.5)")
    assert check_request(spec(1, extra="load>9"), site.projection.snapshot(site.now)) is None
    first = site.submit(wanted)
    assert site.cycle()[first].names == ("n3",)
    none = site.submit(spec(1, extra="load>9"))
    assert site.cycle() == {}
    assert site.reason(none) == "Constraints"
    told = explanation(site, none)
    assert told.summary == "No set of nodes says now what it asks for with --extra."
    assert told.expected is not None
    assert "when a node says so" in told.expected.text
    says("n2", '{"load": 10}')
    assert site.cycle()[none].names == ("n2",)
    plain = site_of()
    job = plain.submit(wanted)
    assert list(plain.cycle()) == [job], "without the option it is a text"
