"""Pods with shares of GPUs: reading, demand, placement."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from spritz.sim.trace.workload import TraceError
from spritz_testing.studies.pods.cluster import PodCluster
from spritz_testing.studies.pods.demand import sequence, typical_tasks
from spritz_testing.studies.pods.placement import BestFitPlacement, FragmentPlacement, RandomPlacement
from spritz_testing.studies.pods.trace import Pod, PodNode, read_nodes, read_pods
from tests.unit.sim.test_simulate_command import simulate

if TYPE_CHECKING:
    from pathlib import Path

PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
a,4000,1000,1,500,
b,4000,1000,1,1000,A100|T4
c,1000,1000,0,0,
d,4000,1000,2,1000,
bad,x,1000,2,1000,
worse,1,1,1,2000,
shares,1,1,2,500,
"""

NODES = """\
sn,cpu_milli,memory_mib,gpu,model
n1,32000,64000,2,T4
n2,32000,64000,4,A100
n3,32000,64000,0,
"""


@pytest.fixture
def lists(tmp_path: Path) -> tuple[str, str]:
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    pods.write_text(PODS)
    nodes.write_text(NODES)
    return str(pods), str(nodes)


def pod(gpus: int = 1, milli: int = 1000, cpu: int = 1000, models: tuple[str, ...] = ()) -> Pod:
    return Pod(name="p", cpu=cpu, memory_mib=0, gpus=gpus, milli=milli if gpus else 0, models=models)


def cluster_of(*gpus: int, cpu: int = 64_000) -> PodCluster:
    return PodCluster(
        [PodNode(name=f"n{i}", cpu=cpu, memory_mib=1000, gpus=count, model="T4") for i, count in enumerate(gpus)]
    )


def test_lists_are_read_and_bad_pods_counted(lists: tuple[str, str]) -> None:
    pods, skipped = read_pods(lists[0])
    assert [one.name for one in pods] == ["a", "b", "c", "d"]
    assert pods[1].models == ("A100", "T4")
    assert sum(one.count for one in skipped.values()) == 3
    assert [node.model for node in read_nodes(lists[1])] == ["T4", "A100", ""]


def test_another_list_is_refused_with_the_columns_it_lacks(lists: tuple[str, str]) -> None:
    with pytest.raises(TraceError, match="num_gpu"):
        read_pods(lists[1])
    with pytest.raises(TraceError, match="sn, gpu, model"):
        read_nodes(lists[0])


def test_a_pod_fits_where_model_gpus_and_cpus_do() -> None:
    cluster = PodCluster(
        [
            PodNode(name="a", cpu=500, memory_mib=10, gpus=2, model="T4"),
            PodNode(name="b", cpu=5000, memory_mib=10, gpus=2, model="T4"),
            PodNode(name="c", cpu=5000, memory_mib=10, gpus=2, model="A100"),
        ]
    )
    assert cluster.feasible(pod()).tolist() == [1, 2]
    assert cluster.feasible(pod(models=("A100",))).tolist() == [2]
    assert cluster.feasible(pod(gpus=3)).tolist() == []
    cluster.take(1, pod(milli=600), [0])
    assert cluster.feasible(pod(gpus=2)).tolist() == [2]
    assert cluster.feasible(pod(milli=400)).tolist() == [1, 2]


def test_demand_is_reached_and_never_passed() -> None:
    pods = [pod(), pod(milli=300), pod(gpus=0)]
    for demand in (0.5, 1.0, 1.3):
        coming = sequence(pods, 10_000, demand, Random(3))
        asked = sum(one.gpus * one.milli for one in coming)
        assert demand * 10_000 - 1000 <= asked <= demand * 10_000


def test_one_seed_gives_one_sequence() -> None:
    pods = [pod(cpu=cpu) for cpu in range(20)]
    assert sequence(pods, 50_000, 1.3, Random(5)) == sequence(pods, 50_000, 1.3, Random(5))
    assert sequence(pods, 50_000, 1.3, Random(5)) != sequence(pods, 50_000, 1.3, Random(6))


def test_typical_requests_stand_for_95_percent() -> None:
    pods = [pod(cpu=1)] * 60 + [pod(cpu=2)] * 36 + [pod(cpu=3)] * 4
    typical = typical_tasks(pods, ["T4"])
    assert typical.cpu.tolist() == [1, 2]
    assert typical.share.sum() == pytest.approx(1)


def test_best_fit_takes_the_fullest_node_and_gpu() -> None:
    cluster = cluster_of(8, 8, 8)
    cluster.take(1, pod(gpus=3), [0, 1, 2])
    cluster.take(1, pod(milli=500), [4])
    assert BestFitPlacement(cluster).choose(pod(milli=400), np.array([0, 1, 2])) == (1, [4])
    assert BestFitPlacement(cluster).choose(pod(gpus=2), np.array([0, 1, 2])) == (1, [3, 5])


def test_descent_fills_a_shared_gpu_rather_than_breaking_a_whole_one() -> None:
    pods = [pod(milli=1000)] * 5 + [pod(milli=500)] * 5
    cluster = cluster_of(2, 2)
    descent = FragmentPlacement(cluster, typical_tasks(pods, cluster.models))
    cluster.take(1, pod(milli=500), [1])
    descent.placed(1)
    assert descent.choose(pod(milli=500), np.array([0, 1])) == (1, [1])


def test_descent_remembers_what_changed() -> None:
    pods = [pod(milli=1000), pod(milli=400), pod(milli=600, cpu=9000), pod(gpus=2)]
    random = Random(1)
    cluster = cluster_of(4, 4, 2, 1)
    typical = typical_tasks(pods, cluster.models)
    descent = FragmentPlacement(cluster, typical)
    for _ in range(40):
        one = pods[random.randrange(4)]
        feasible = cluster.feasible(one)
        if not len(feasible):
            continue
        chosen = descent.choose(one, feasible)
        assert chosen == FragmentPlacement(cluster, typical).choose(one, feasible)
        cluster.take(chosen[0], one, chosen[1])
        descent.placed(chosen[0])
        assert int(cluster.gpus.min()) >= 0
        assert int(cluster.cpu.min()) >= 0


def test_random_placement_is_seeded_and_feasible() -> None:
    cluster = cluster_of(2, 2)
    cluster.take(0, pod(milli=900), [0])
    node, gpus = RandomPlacement(cluster, Random(2)).choose(pod(milli=500), np.array([0]))
    assert (node, gpus) == (0, [1])


@pytest.mark.parametrize("placement", ["random", "bestfit", "fgd"])
def test_the_command_fills_a_cluster(lists: tuple[str, str], placement: str) -> None:
    words = ("--pods", lists[0], "--node-list", lists[1], "--demand", "1.3", "--placement", placement, "--seed", "7")
    status, out, err = simulate(*words, "--json")
    assert status == 0
    figures = json.loads(out)
    assert 50 < figures["gpus_allocated_percent"] <= 100
    assert 0 <= figures["fragmentation_percent"] <= 100
    assert "skipped 1 row" in err
    again = json.loads(simulate(*words, "--json")[1])
    assert again["gpus_allocated_percent"] == figures["gpus_allocated_percent"]


def test_pods_need_a_node_list(lists: tuple[str, str]) -> None:
    status, _, err = simulate("--pods", lists[0])
    assert status == 2
    assert "--node-list" in err


def test_options_of_another_form_are_refused(lists: tuple[str, str]) -> None:
    status, _, err = simulate("--pods", lists[0], "--node-list", lists[1], "--processors", "3")
    assert status == 2
    assert "--processors has no meaning for --pods" in err


@pytest.mark.parametrize("placement", ["production", "gpu_fragmentation"])
def test_the_production_cycle_places_pods_where_they_fit(lists: tuple[str, str], placement: str) -> None:
    arguments = ("--pods", lists[0], "--node-list", lists[1], "--placement", placement, "--demand", "1.5", "--json")
    figures = json.loads(simulate(*arguments)[1])
    assert figures["pods"] > figures["pods_failed"] > 0
    assert 80 < figures["gpus_allocated_percent"] <= 100
