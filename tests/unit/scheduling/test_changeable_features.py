"""Nodes that are rebooted for the features of a job. Source: helpers.conf(5); sbatch(1) --delay-boot."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import FeaturePolicy
from spritz.model.events.cluster import NodeRegistered
from spritz.model.states import NodeState
from spritz.scheduling.plan.feasible import check_request
from tests.unit.scheduling.site import SETTINGS, Site, node, spec
from tests.unit.scheduling.test_explain import told

CHANGES = FeaturePolicy(names=("nps1", "nps2", "turbo"), exclusive=(("nps1", "nps2"),))


def site(policy: FeaturePolicy = CHANGES, count: int = 3, **active: str) -> Site:
    """n1 … with one feature of their own; helpers report `active`."""
    settings = replace(SETTINGS, features=policy, power=PowerPolicy(reboots=True))
    made = Site([node(f"n{number}", features=("ib",)) for number in range(1, count + 1)], settings=settings)
    for config in made.configs:
        report(made, config.name, *active.get(config.name, "").split())
    return made


def report(here: Site, name: str, *active: str) -> None:
    """The node registers with these of the changeable features active."""
    here.apply(
        NodeRegistered(
            at=here.now,
            name=name,
            state=NodeState.IDLE,
            features_changeable=CHANGES.names,
            features_active=("ib", *active),
        )
    )


def test_a_node_that_has_the_feature_goes_before_one_that_would_be_rebooted() -> None:
    here = site(n3="nps1")
    one, two = (here.submit(spec(4, features="ib&nps1")) for _ in range(2))
    started = here.cycle()
    assert started[one].names == started[two].names == ("n3",)
    three = here.submit(spec(4, features="nps1"))
    assert here.cycle()[three].names == ("n1",)
    assert here.machine.state.nodes["n1"].features_wanted == ("nps1",)


def test_only_an_empty_node_is_rebooted() -> None:
    here = site()
    busy = [here.submit(spec(1, nodes=1, node_list=(name,))) for name in ("n1", "n2")]
    here.cycle()
    two = here.submit(spec(2, nodes=2, features="turbo"))
    assert here.cycle() == {}
    assert here.reason(two) == "Resources"
    here.end(busy[1])
    assert here.cycle()[two].names == ("n2", "n3")


def test_a_job_of_several_nodes_has_those_rebooted_that_lack_the_feature() -> None:
    here = site(n2="turbo")
    job = here.submit(spec(3, nodes=3, features="turbo"))
    assert here.cycle()[job].names == ("n1", "n2", "n3")
    wanted = {name: each.features_wanted for name, each in here.machine.state.nodes.items()}
    assert wanted == {"n1": ("turbo",), "n2": (), "n3": ("turbo",)}


def test_with_delay_boot_it_waits_for_nodes_that_have_the_feature() -> None:
    here = site()
    job = here.submit(spec(1, features="nps2", delay_boot_seconds=600))
    assert here.cycle() == {}
    assert "--delay-boot" in here.reason(job)
    said = [test.text for test in told(here, job).partitions[0].tests]
    assert said == ["not rebooted for nps2 yet (--delay-boot)"]
    assert check_request(here.jobs[job].spec, here.projection.snapshot(here.now)) is None
    here.now += 599
    assert here.cycle() == {}
    here.now += 1
    assert here.cycle()[job].names == ("n1",)


def test_the_clusters_delay_counts_for_jobs_that_say_nothing() -> None:
    here = site(replace(CHANGES, delay_seconds=60))
    waits, at_once = here.submit(spec(1, features="nps2")), here.submit(spec(1, features="nps2", delay_boot_seconds=0))
    assert list(here.cycle()) == [at_once]
    here.now += 60
    assert list(here.cycle()) == [waits]


def test_a_node_changes_while_a_job_waits_for_it_to_be_that_way() -> None:
    here = site()
    job = here.submit(spec(1, features="nps2", delay_boot_seconds=600))
    assert here.cycle() == {}
    report(here, "n2", "nps2")
    assert here.cycle()[job].names == ("n2",)
    assert not here.machine.state.nodes["n2"].features_wanted


def test_only_allowed_users_have_nodes_rebooted() -> None:
    here = site(replace(CHANGES, users=("ann",)))
    here.submit(spec(1, features="nps1", user="bob"))
    job = here.submit(spec(1, features="nps1", user="ann"))
    assert list(here.cycle()) == [job]


def test_without_a_reboot_program_only_what_needs_no_reboot_is_changed() -> None:
    policy = replace(CHANGES, rebootless=("turbo",))
    settings = replace(SETTINGS, features=policy, power=PowerPolicy(reboots=False))
    here = Site([node("n1"), node("n2")], settings=settings)
    for name in ("n1", "n2"):
        report(here, name)
    here.submit(spec(1, features="nps1"))
    job = here.submit(spec(1, features="turbo"))
    assert list(here.cycle()) == [job]


def test_either_of_two_features_is_had_from_a_node_that_could_have_one() -> None:
    here = site(n2="nps2")
    job = here.submit(spec(8, nodes=1, features="nps1|nps2"))
    other = here.submit(spec(8, nodes=1, features="nps1|nps2"))
    started = here.cycle()
    assert (started[job].names, started[other].names) == (("n2",), ("n1",))


def test_the_updated_projection_equals_one_built_from_the_records() -> None:
    here = site(n2="nps2")
    here.submit(spec(1, features="nps1", delay_boot_seconds=600))
    report(here, "n3", "turbo")
    here.projection.settle(here.now)
    before = [row.key() for row in here.projection.table.rows]
    here.projection.rebuild()
    assert [row.key() for row in here.projection.table.rows] == before
