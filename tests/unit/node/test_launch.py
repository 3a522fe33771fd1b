"""Files, GPUs and CPUs of tasks. Sources: srun(1), sbatch(1), gres.conf(5)."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import Step, StepNode, StepSpec
from spritz.model.node_daemon.launch import LaunchBatch, LaunchStep
from spritz.model.resources import Allocation, GresAllocation, GresCapacity, NodeAllocation
from spritz.node.launch.affinity import Topology, cpu_bind_variables, real_cpus
from spritz.node.launch.build import MemoryRule, NodeSetup, batch_spec, step_spec
from spritz.node.launch.environment import NodeFacts
from spritz.node.launch.gpus import bound_gpus, device_files, gpu_kinds, gpu_variables, mps_each, visible
from spritz.node.launch.streams import appends, batch_streams, step_streams
from spritz.stepd.spec import CLIENT, NOTHING, SupervisorSpec

SHARES = (
    NodeAllocation(node="n1", cpus="f", memory_mib=500, gres=(GresAllocation(name="gpu", count=2, indexes="c"),)),
    NodeAllocation(node="n2", cpus="f", memory_mib=500, gres=(GresAllocation(name="gpu", count=2, indexes="3"),)),
)


def job(**fields: object) -> Job:
    """A job of alice's on n1 and n2."""
    given: dict[str, object] = {"name": "train", "uid": 1001, "gid": 100, "user": "alice", "work_dir": "/home/alice"}
    more = {name: fields.pop(name) for name in ("array_job_id", "array_task_id", "restart_count") if name in fields}
    return Job(
        id=12,
        spec=JobSpec(**(given | fields)),  # type: ignore[arg-type]
        allocation=Allocation(partition="main", nodes=SHARES),
        **more,  # type: ignore[arg-type]
    )


def step(**fields: object) -> Step:
    """Two tasks on each node."""
    nodes = (StepNode(allocation=SHARES[0], task_ids=(0, 1)), StepNode(allocation=SHARES[1], task_ids=(2, 3)))
    given: dict[str, object] = {"argv": ("prog",), "io_address": "unix:@x", "io_key": "k"}
    return Step(job_id=12, step_id=3, spec=StepSpec(**(given | fields)), uid=1001, nodes=nodes, tasks=4)  # type: ignore[arg-type]


def setup(**fields: object) -> NodeSetup:
    """A node whose machine has eight CPUs, numbered hyper-threads last."""
    given: dict[str, object] = {"facts": NodeFacts(name="n1", cluster_name="c", slurm_conf="/s"), "cpus": 8}
    return NodeSetup(**(given | fields))  # type: ignore[arg-type]


def built(made: Step, node: str = "n1", **fields: object) -> SupervisorSpec:
    """What the supervisor of a step is told."""
    message = LaunchStep(term=1, node=node, job=job(), step=made, task_counts=(2, 2), cluster_name="c")
    return step_spec(message, "/spool/x", setup(**fields))


@pytest.mark.parametrize(
    ("fields", "stdout", "stderr"),
    [
        ({}, "/home/alice/slurm-12.out", "/home/alice/slurm-12.out"),
        ({"array_job_id": 10, "array_task_id": 2}, "/home/alice/slurm-10_2.out", "/home/alice/slurm-10_2.out"),
        ({"stdout": "o-%x-%u-%5j"}, "/home/alice/o-train-alice-00012", "/home/alice/o-train-alice-00012"),
        ({"stdout": "/abs/%N-%t", "stderr": "e%%"}, "/abs/n1-0", "/home/alice/e%"),
        ({"stdout": "a\\%j"}, "/home/alice/a%j", "/home/alice/a%j"),
        ({"stdout": "%A.%a.%b"}, "/home/alice/12.4294967294.4294967294", "/home/alice/12.4294967294.4294967294"),
    ],
)
def test_a_batch_scripts_files_follow_their_patterns(fields: dict[str, object], stdout: str, stderr: str) -> None:
    found = batch_streams(job(**fields), "n1")
    assert (found.stdin, found.stdout, found.stderr) == (NOTHING, stdout, stderr)


@pytest.mark.parametrize(
    ("fields", "task2"),
    [
        ({}, (CLIENT, CLIENT, CLIENT)),
        ({"stdout": "o-%t-%n-%s-%J"}, (CLIENT, "/home/alice/o-2-1-3-12.3", "/home/alice/o-2-1-3-12.3")),
        ({"stderr": "e-%N"}, (CLIENT, CLIENT, "/home/alice/e-n2")),
        ({"stdout": "none"}, (CLIENT, NOTHING, NOTHING)),
        ({"stdout": "2"}, (CLIENT, CLIENT, CLIENT)),
        ({"stdout": "1"}, (CLIENT, NOTHING, NOTHING)),
        ({"stdin": "none"}, (NOTHING, CLIENT, CLIENT)),
        ({"stdin_task": "2"}, (CLIENT, CLIENT, CLIENT)),
        ({"stdin_task": "0"}, (NOTHING, CLIENT, CLIENT)),
        ({"stdin": "in-%t"}, ("/home/alice/in-2", CLIENT, CLIENT)),
        ({"pty": True}, (NOTHING, NOTHING, NOTHING)),
        ({"work_dir": "/w", "stdout": "o"}, (CLIENT, "/w/o", "/w/o")),
    ],
)
def test_a_tasks_streams_go_to_the_client_to_files_or_nowhere(
    fields: dict[str, object], task2: tuple[str, ...]
) -> None:
    found = step_streams(job(), step(**fields), "n2", 1, 0)
    assert (found.stdin, found.stdout, found.stderr) == task2


def test_files_are_truncated_unless_asked_otherwise_or_run_again() -> None:
    assert not appends(job(), "", False)
    assert appends(job(), "", True)
    assert appends(job(), "a", False)
    assert appends(job(restart_count=1), "", False)
    assert not appends(job(restart_count=1), "t", True)


def test_nodes_that_share_a_file_do_not_empty_it_twice() -> None:
    assert not built(step(stdout="all.out"), "n1").append
    assert built(step(stdout="all.out"), "n2").append
    assert not built(step(stdout="%n.out"), "n2").append


def test_every_task_sees_the_gpus_of_its_node_or_those_it_is_bound_to() -> None:
    def seen(made: Step, node: str = "n1") -> list[str]:
        variables = [dict(text.split("=", 1) for text in task.environment) for task in built(made, node).tasks]
        return [variable["CUDA_VISIBLE_DEVICES"] for variable in variables]

    assert seen(step()) == ["2,3", "2,3"]
    assert seen(step(), "n2") == ["0,1", "0,1"]
    assert seen(step(gpu_bind="single:1")) == ["2", "3"]
    assert seen(step(tasks_per_gpu=1)) == ["2", "3"]
    assert seen(step(tasks_per_gpu=1, gpu_bind="none")) == ["2,3", "2,3"]
    assert seen(step(gpu_bind="per_task:1"), "n2") == ["0", "1"]
    assert seen(step(gpu_bind="verbose,map_gpu:3,2")) == ["3", "2"]
    assert seen(step(gpu_bind="mask_gpu:0x4*2")) == ["2", "2"]
    by_task = step()
    by_task = Step(
        job_id=12,
        step_id=3,
        spec=by_task.spec,
        uid=1001,
        nodes=(StepNode(allocation=SHARES[0], task_ids=(0, 1), gpus_by_task=("8", "4")), by_task.nodes[1]),
        tasks=4,
    )
    assert seen(by_task) == ["3", "2"]


def test_gpu_bindings_go_round_when_there_are_more_tasks_than_devices() -> None:
    assert [bound_gpus("single:2", 0b11, task, 5) for task in range(5)] == [1, 1, 2, 2, 1]
    assert bound_gpus("closest", 0b11, 0, 1) == 0b11
    assert bound_gpus("", 0, 0, 1) == 0


def test_vendors_are_those_of_the_flags_and_shards_show_their_gpu() -> None:
    assert gpu_kinds((GresCapacity(name="gpu", flags=("nvidia_gpu_env",)),)) == frozenset({"nvidia"})
    assert gpu_kinds((GresCapacity(name="gpu", flags=("no_gpu_env",)),)) == frozenset()
    shards = (GresAllocation(name="shard", count=3, indexes="2"),)
    assert gpu_variables(shards, frozenset({"nvidia"})) == {"CUDA_VISIBLE_DEVICES": "1", "SLURM_SHARDS_ON_NODE": "3"}


def test_a_part_of_a_gpus_threads_is_what_mps_gives() -> None:
    lines = tuple(GresCapacity(name="mps", count=200, per_device=200, first_index=index) for index in (0, 1))
    mps = (GresAllocation(name="mps", count=50, indexes="2"),)
    assert gpu_variables(mps, frozenset({"nvidia"}), mps_each=mps_each(lines)) == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_VISIBLE_DEVICES": "1",
    }


def test_abstract_cpus_are_places_in_the_machines_own_order() -> None:
    machine = Topology(sockets=1, cores_per_socket=4, threads_per_core=2, order=(0, 4, 1, 5, 2, 6, 3, 7))
    assert real_cpus(0b1111, 8, machine) == (0, 1, 4, 5)
    assert real_cpus(0b11111111, 8, machine) == ()
    assert real_cpus(0b11, 64, machine) == ()
    assert real_cpus(0b11, 8, None) == ()
    assert built(step(), topology=machine, bind=True).tasks[0].cpus == (0, 1, 4, 5)
    assert built(step(), topology=machine).tasks[0].cpus == ()


def test_bound_tasks_know_their_masks() -> None:
    assert cpu_bind_variables(("3", "c")) == {
        "SLURM_CPU_BIND": "quiet,mask_cpu:0x3,0xC",
        "SLURM_CPU_BIND_LIST": "0x3,0xC",
        "SLURM_CPU_BIND_TYPE": "mask_cpu:",
        "SLURM_CPU_BIND_VERBOSE": "quiet",
    }
    assert cpu_bind_variables(()) == {}


def test_a_multi_prog_step_gives_each_rank_its_line() -> None:
    """srun has replaced `%t` and `%o`: those that are left were quoted."""
    made = step(multi_prog=(("1", ("first", "%t")), ("e", ("other", "0"))))
    assert [task.argv for task in built(made).tasks] == [("first", "%t"), ("other", "0")]
    assert [task.argv for task in built(made, "n2").tasks] == [("other", "0"), ("other", "0")]


def test_limits_are_those_that_the_cluster_propagates() -> None:
    made = step(limits=(("NOFILE", 5), ("CORE", 0)))
    assert built(made).limits == (("NOFILE", 5), ("CORE", 0))
    assert built(made, limits=frozenset({"CORE"})).limits == (("CORE", 0),)
    asked = replace(made, spec=replace(made.spec, limits_asked=True))
    assert built(asked, limits=frozenset({"CORE"})).limits == built(made).limits


def test_a_batch_script_runs_from_the_spool_with_its_arguments_in_its_memory() -> None:
    message = LaunchBatch(
        term=1,
        node="n1",
        job=job(arguments=("a", "b c")),
        script=b"#!/bin/sh\n",
        environment=(b"A=1",),
        task_counts=(1, 1),
        cluster_name="c",
    )
    made = batch_spec(message, "/spool/x", setup())
    assert made.tasks[0].argv == ("/spool/x/slurm_script", "a", "b c")
    assert (made.memory_limit_mib, made.label) == (500, "12.batch")
    assert (made.identity.uid, made.identity.gid, made.identity.groups) == (1001, 100, (100,))
    assert made.environment[-1] == b"SPRITZ_STEP=/spool/x"


def test_memory_limits_follow_cgroup_conf() -> None:
    rule = MemoryRule(percent=50, min_mib=300, max_mib=1000, swap_percent=10)
    assert [rule.limits(asked) for asked in (0, 100, 800, 5000)] == [(0, 0), (300, 10), (400, 80), (1000, 500)]
    assert MemoryRule(swap_percent=None).limits(100) == (100, -1)
    assert MemoryRule().limits(100) == (100, 0)


def test_files_of_devices_are_told_apart_by_the_allocation() -> None:
    capacity = (
        GresCapacity(name="gpu", type="a", count=2, files=("/dev/g0", "/dev/g1")),
        GresCapacity(name="gpu", type="b", count=1, first_index=2, files=("/dev/g2a,/dev/g2b",)),
        GresCapacity(name="shard", count=8, first_index=0, files=("/dev/g0", "/dev/g1"), per_device=4),
        GresCapacity(name="nic", count=2, files=("/dev/n0", "/dev/n1")),
        GresCapacity(name="license", count=3),
    )
    denied, given = device_files(capacity, (GresAllocation(name="gpu", type="b", count=1, indexes="4"),))
    assert set(denied) == {"/dev/g0", "/dev/g1", "/dev/n0", "/dev/n1"}
    assert set(given) == {"/dev/g2a", "/dev/g2b"}
    shares = (GresAllocation(name="shard", count=2, indexes="2"), GresAllocation(name="nic", count=1, indexes="1"))
    assert set(device_files(capacity, shares)[1]) == {"/dev/g1", "/dev/n0"}


def test_a_step_without_gpus_does_not_see_those_of_its_script() -> None:
    """srun --gres=none, as in Slurm 22.05: only SLURM_JOB_GPUS stays."""
    inherited = (b"CUDA_VISIBLE_DEVICES=2,3", b"SLURM_GPUS_ON_NODE=2", b"SLURM_STEP_GPUS=2,3", b"SLURM_JOB_GPUS=2,3")
    made = step(environment=inherited)
    bare = replace(made, nodes=tuple(replace(n, allocation=replace(n.allocation, gres=())) for n in made.nodes))

    def names(made: Step, gres: tuple[GresCapacity, ...] = ()) -> set[bytes]:
        return {entry.partition(b"=")[0] for entry in built(made, gres=gres).environment}

    about = {b"CUDA_VISIBLE_DEVICES", b"SLURM_GPUS_ON_NODE", b"SLURM_STEP_GPUS"}
    gpus = (GresCapacity(name="gpu", count=4),)
    assert names(made, gpus) >= about
    assert not names(bare, gpus) & about
    assert names(bare, gpus) >= {b"SLURM_JOB_GPUS"}
    assert names(bare) >= about, "the node has no GPUs for jobs, and its user's own choice stays"


def test_gpus_count_from_zero_where_the_others_are_hidden() -> None:
    kinds = frozenset({"nvidia"})
    gpus = (GresAllocation(name="gpu", count=2, indexes="a"),)
    assert gpu_variables(gpus, kinds)["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert gpu_variables(gpus, kinds, local=True)["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert visible(0b1000, kinds, 0b1010) == {"CUDA_VISIBLE_DEVICES": "1"}


def test_a_step_is_sampled_as_often_as_it_or_its_job_asked() -> None:
    def interval(of_job: int | None, of_step: int | None) -> float:
        message = LaunchStep(
            term=1,
            node="n1",
            job=job(sample_seconds=of_job),
            step=step(sample_seconds=of_step),
            task_counts=(2, 2),
            cluster_name="c",
        )
        return step_spec(message, "/spool/x", setup(sample_seconds=30.0)).sample_seconds

    assert [interval(None, None), interval(7, None), interval(7, 3), interval(7, 0)] == [30.0, 7.0, 3.0, 0.0]


def test_a_batch_script_is_sampled_as_often_as_its_job_asked() -> None:
    def interval(of_job: int | None) -> float:
        message = LaunchBatch(
            term=1,
            node="n1",
            job=job(sample_seconds=of_job),
            script=b"",
            environment=(),
            task_counts=(1, 1),
            cluster_name="c",
        )
        return batch_spec(message, "/spool/x", setup(sample_seconds=30.0)).sample_seconds

    assert [interval(None), interval(0), interval(4)] == [30.0, 0.0, 4.0]


def test_an_mpi_run_has_one_name_on_all_nodes_that_no_other_run_has() -> None:
    """Clusters that share a machine have nodes, jobs and steps of the same names, which name programs' memory.

    Other users, who see the step's number and start, must not know it: libpmix believes who does.
    """

    def named(made: Step, node: str) -> str:
        served = built(made, node).pmix
        assert served is not None
        return served.namespace

    here = replace(step(mpi="pmix"), started_at=1_700_000_000.000001)
    elsewhere = replace(here, started_at=1_700_000_000.000002)
    assert named(here, "n1") == named(here, "n2")
    assert named(here, "n1").startswith("slurm.pmix.12.3.")
    assert named(here, "n1") != named(elsewhere, "n1")
    other_key = replace(here, spec=replace(here.spec, io_key="other"))
    assert named(here, "n1") != named(other_key, "n1")


def test_a_commands_niceness_is_its_tasks_where_the_site_says_so() -> None:
    """PropagatePrioProcess; the variable tells of it in any case."""
    asked = step(environment=(b"SLURM_PRIO_PROCESS=19",))
    for propagate, added in ((0, 0), (1, 19 - os.getpriority(os.PRIO_PROCESS, 0))):
        made = built(asked, propagate_priority=propagate)
        assert made.nice == added
        assert b"SLURM_PRIO_PROCESS=19" in made.environment
    assert b"SLURM_PRIO_PROCESS=0" in built(step()).environment
