"""The environment of jobs and steps. Expected values were recorded from Slurm 22.05 with the same requests."""

from __future__ import annotations

from spritz.model.job.record import ArrayState, Dependency, Job, JobSpec
from spritz.model.job.step import Step, StepNode, StepSpec
from spritz.model.resources import Allocation, GresAllocation, GresRequest, NodeAllocation
from spritz.node.launch.environment import (
    NodeFacts,
    batch_variables,
    merge,
    step_variables,
    task_variables,
)

#: What 22.05 does not have or what names a moment: not part of the comparison.
_NOT_COMPARED = {
    "SLURM_JOB_GROUP",
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME",
    "SLURM_OOM_KILL_STEP",
}
FACTS = NodeFacts(name="node3", cluster_name="real", slurm_conf="/etc/slurm/slurm.conf")
GPU0 = (GresAllocation(name="gpu", count=1, indexes="1"),)


def job(spec: JobSpec, nodes: tuple[NodeAllocation, ...], **fields: object) -> Job:
    """A running job of root's in partition long."""
    allocation = Allocation(partition="long", nodes=nodes)
    return Job(id=40263, spec=spec, allocation=allocation, started_at=100.0, ends_at=400.0, **fields)  # type: ignore[arg-type]


def spec(**fields: object) -> JobSpec:
    """What every request here has alike."""
    given = {"name": "envtest", "uid": 0, "gid": 0, "user": "root", "group": "root", "submit_host": "vm", "batch": True}
    return JobSpec(**(given | fields))  # type: ignore[arg-type]


def compared(variables: dict[str, str]) -> dict[str, str]:
    """Without what cannot be compared."""
    return {name: value for name, value in variables.items() if name not in _NOT_COMPARED}


COMMON = {
    "SLURMD_NODENAME": "node3",
    "SLURM_CLUSTER_NAME": "real",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_JOBID": "40263",
    "SLURM_JOB_GID": "0",
    "SLURM_JOB_ID": "40263",
    "SLURM_JOB_NAME": "envtest",
    "SLURM_JOB_PARTITION": "long",
    "SLURM_JOB_UID": "0",
    "SLURM_JOB_USER": "root",
    "SLURM_NODEID": "0",
    "SLURM_SUBMIT_HOST": "vm",
    "SLURM_TOPOLOGY_ADDR": "node3",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
}
BATCH = COMMON | {
    "ENVIRONMENT": "BATCH",
    "HOSTNAME": "node3",
    "SLURM_GTIDS": "0",
    "SLURM_LOCALID": "0",
    "SLURM_PROCID": "0",
}


def two_nodes() -> Job:
    """`sbatch -N2 --ntasks-per-node=2 -c2 --gres=gpu:1 --mem=1000`."""
    asked = spec(
        nodes_min=2,
        nodes_given=True,
        tasks=4,
        tasks_per_node=2,
        cpus_per_task=2,
        memory_mib_per_node=1000,
        gres_per_node=(GresRequest("gpu"),),
    )
    return job(asked, tuple(NodeAllocation(node=name, cpus="f", gres=GPU0) for name in ("node3", "node4")))


def test_the_batch_script_of_a_gpu_job_on_two_nodes() -> None:
    assert compared(batch_variables(two_nodes(), 0, (2, 2), FACTS)) == BATCH | {
        "CUDA_VISIBLE_DEVICES": "0",
        "GPU_DEVICE_ORDINAL": "0",
        "ROCR_VISIBLE_DEVICES": "0",
        "ZE_AFFINITY_MASK": "0",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_GPUS_ON_NODE": "1",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
        "SLURM_JOB_GPUS": "0",
        "SLURM_JOB_NODELIST": "node[3-4]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_MEM_PER_NODE": "1000",
        "SLURM_NNODES": "2",
        "SLURM_NODELIST": "node[3-4]",
        "SLURM_NPROCS": "4",
        "SLURM_NTASKS": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_TRES_PER_TASK": "cpu=2",
    }


def test_what_each_task_gets_is_one_variable() -> None:
    """sbatch(1) SLURM_TRES_PER_TASK: --tres-per-task, or what stands for it."""
    gpus = (GresRequest("gpu", "h100", 2), GresRequest("gpu", "", 1))
    asked = job(spec(cpus_per_task=3, gpus_per_task=gpus), (NodeAllocation(node="node3", cpus="7"),))
    variables = batch_variables(asked, 0, (1,), FACTS)
    assert variables["SLURM_TRES_PER_TASK"] == "cpu=3,gres/gpu:h100=2,gres/gpu=1"
    assert variables["SLURM_GPUS_PER_TASK"] == "h100:2,1"


def test_a_plain_job_says_nothing_of_tasks_that_were_not_asked_for() -> None:
    plain = job(spec(), (NodeAllocation(node="node3", cpus="1"),))
    assert compared(batch_variables(plain, 0, (1,), FACTS)) == BATCH | {
        "SLURM_CPUS_ON_NODE": "1",
        "SLURM_JOB_CPUS_PER_NODE": "1",
        "SLURM_JOB_NODELIST": "node3",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_NODELIST": "node3",
        "SLURM_TASKS_PER_NODE": "1",
    }


def test_an_array_task_knows_its_array() -> None:
    whole = ArrayState(pending="0", task_count=2, task_min=3, task_max=5, task_step=2)
    task = job(
        spec(tasks=3, tasks_given=True, memory_mib_per_cpu=100),
        (NodeAllocation(node="node3", cpus="7"),),
        array_of=whole,
        array_job_id=40264,
        array_task_id=5,
    )
    variables = batch_variables(task, 0, (3,), FACTS)
    assert {name: value for name, value in variables.items() if "ARRAY" in name} == {
        "SLURM_ARRAY_JOB_ID": "40264",
        "SLURM_ARRAY_TASK_COUNT": "2",
        "SLURM_ARRAY_TASK_ID": "5",
        "SLURM_ARRAY_TASK_MAX": "5",
        "SLURM_ARRAY_TASK_MIN": "3",
        "SLURM_ARRAY_TASK_STEP": "2",
    }
    assert (variables["SLURM_MEM_PER_CPU"], variables["SLURM_NTASKS"]) == ("100", "3")
    assert (variables["SLURM_CPUS_ON_NODE"], variables["SLURM_TASKS_PER_NODE"]) == ("3", "3")


def test_sizes_appear_as_they_were_asked_for() -> None:
    asked = spec(
        tasks=3,
        tasks_given=True,
        overcommit=True,
        distribution="cyclic",
        gpus_per_task=(GresRequest("gpu"),),
        gpus_per_node=(GresRequest("gpu", "", 2),),
        threads_per_core=1,
        dependencies=(Dependency(kind="singleton"),),
    )
    both = (GresAllocation(name="gpu", count=2, indexes="3"),)
    variables = batch_variables(
        job(asked, tuple(NodeAllocation(node=name, cpus="1", gres=both) for name in ("node3", "node4"))),
        0,
        (2, 2),
        FACTS,
    )
    expected = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "SLURM_CPUS_ON_NODE": "1",
        "SLURM_DISTRIBUTION": "cyclic",
        "SLURM_GPUS_ON_NODE": "2",
        "SLURM_GPUS_PER_NODE": "2",
        "SLURM_GPUS_PER_TASK": "1",
        "SLURM_JOB_CPUS_PER_NODE": "1(x2)",
        "SLURM_JOB_DEPENDENCY": "singleton",
        "SLURM_JOB_GPUS": "0,1",
        "SLURM_NPROCS": "3",
        "SLURM_NTASKS": "3",
        "SLURM_OVERCOMMIT": "1",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_THREADS_PER_CORE": "1",
    }
    assert {name: variables.get(name) for name in expected} == expected
    typed = batch_variables(
        job(
            spec(gpus=(GresRequest("gpu", "a100", 2),), cpus_per_gpu=2, memory_mib_per_gpu=100),
            (NodeAllocation(node="node3", cpus="f", gres=both),),
        ),
        0,
        (4,),
        FACTS,
    )
    assert typed["SLURM_GPUS"] == "a100:2"
    assert (typed["SLURM_CPUS_PER_GPU"], typed["SLURM_MEM_PER_GPU"]) == ("2", "100")
    assert "SLURM_NTASKS" not in typed


def test_a_step_on_its_second_node() -> None:
    running = two_nodes()
    assert running.allocation is not None
    nodes = (
        StepNode(allocation=running.allocation.nodes[0], task_ids=(0, 1)),
        StepNode(allocation=running.allocation.nodes[1], task_ids=(2, 3)),
    )
    step = Step(job_id=40263, step_id=0, spec=StepSpec(), uid=0, nodes=nodes, tasks=4)
    facts = NodeFacts(name="node4", cluster_name="real", slurm_conf="/etc/slurm/slurm.conf")
    variables = compared(step_variables(running, step, 1, (2, 2), facts) | task_variables(nodes[1], 1))
    assert variables == COMMON | {
        "CUDA_VISIBLE_DEVICES": "0",
        "GPU_DEVICE_ORDINAL": "0",
        "ROCR_VISIBLE_DEVICES": "0",
        "ZE_AFFINITY_MASK": "0",
        "SLURMD_NODENAME": "node4",
        "SLURM_CPUS_ON_NODE": "4",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_DISTRIBUTION": "block",
        "SLURM_GPUS_ON_NODE": "1",
        "SLURM_GTIDS": "2,3",
        "SLURM_JOB_CPUS_PER_NODE": "4(x2)",
        "SLURM_JOB_GPUS": "0",
        "SLURM_JOB_NODELIST": "node[3-4]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_LOCALID": "1",
        "SLURM_MEM_PER_NODE": "1000",
        "SLURM_NNODES": "2",
        "SLURM_NODEID": "1",
        "SLURM_NODELIST": "node[3-4]",
        "SLURM_NPROCS": "4",
        "SLURM_NTASKS": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_PROCID": "3",
        "SLURM_STEPID": "0",
        "SLURM_STEP_GPUS": "0",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "node[3-4]",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_TOPOLOGY_ADDR": "node4",
        "SLURM_UMASK": "0022",
        "SLURM_TRES_PER_TASK": "cpu=2",
    }


def test_facts_replace_what_the_user_says_and_the_rest_is_kept_byte_for_byte() -> None:
    user = (b"A=1", b"SLURM_JOB_ID=7", b"B=\xff\n=", b"nonsense", b"=x", b"TMPDIR=/mine")
    assert merge(user, {"SLURM_JOB_ID": "40263"}) == (b"A=1", b"B=\xff\n=", b"TMPDIR=/mine", b"SLURM_JOB_ID=40263")
    assert merge((), {}) == (b"TMPDIR=/tmp",)


def test_a_restarted_job_knows_how_often() -> None:
    first = job(spec(), (NodeAllocation(node="node3", cpus="1"),))
    again = job(spec(), (NodeAllocation(node="node3", cpus="1"),), restart_count=2)
    assert "SLURM_RESTART_COUNT" not in batch_variables(first, 0, (1,), FACTS)
    assert batch_variables(again, 0, (1,), FACTS)["SLURM_RESTART_COUNT"] == "2"
