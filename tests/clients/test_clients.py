"""What users of submitit, dask-jobqueue, simple_slurm, snakemake, psij, MPI, Lightning and accelerate do on Slurm, done
here; and a Slurm exporter."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.e2e.cluster import until
from tests.ports import free_port

PYTHON = os.environ.get("SPRITZ_CLIENTS_PYTHON", sys.executable)
BIN = Path(sys.executable).parent
PROGRAMS = Path(__file__).parents[1] / "training/programs"

pytestmark = pytest.mark.timeout(600)


def needs(client: str) -> pytest.MarkDecorator:
    """Skips a test of a client that is not installed: light ones come with the tests of every change."""
    missing = "SPRITZ_CLIENTS_PYTHON" not in os.environ and importlib.util.find_spec(client) is None
    return pytest.mark.skipif(missing, reason=f"{client} is not installed; `make clients` does that")


class Site:
    """A user's own cluster, found as every command finds it, and a directory to work in."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.work.mkdir()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SBATCH"))}
        path = f"{BIN}:{Path(PYTHON).parent}:{os.environ['PATH']}"
        self.environ = kept | {"XDG_STATE_HOME": str(root / "state"), "PATH": path}

    def run(self, *argv: str, seconds: float = 300) -> str:
        """Standard output of a program that must succeed."""
        done = subprocess.run(
            argv, cwd=self.work, env=self.environ, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, f"{argv[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def status(self, *argv: str) -> int:
        """The exit status of a program."""
        return subprocess.run(argv, cwd=self.work, env=self.environ, capture_output=True, check=False).returncode

    def script(self, text: str) -> list[str]:
        """Lines that a program of the client's Python prints."""
        (self.work / "client.py").write_text(textwrap.dedent(text))
        return self.run(PYTHON, "client.py").splitlines()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.run("spritz", "up", "--nodes", "4", "--cpus", "8", "--memory", "16G", "--gpus", "2")
    # `spritz up` does not wait for slurmdbd, which jobs do not need; these clients do.
    until(lambda: made.status("sacct") == 0, "slurmdbd answers")
    try:
        yield made
    finally:
        made.run("spritz", "down")


@needs("submitit")
def test_submitit_runs_functions_on_several_nodes_and_as_an_array(site: Site) -> None:
    found = site.script("""
        import submitit

        def work(x):
            here = submitit.JobEnvironment()
            return x * x, here.global_rank, here.num_tasks, here.num_nodes

        wide = submitit.AutoExecutor(folder="log/%j")
        wide.update_parameters(timeout_min=5, nodes=2, tasks_per_node=2, cpus_per_task=1, mem_gb=1)
        print(wide.submit(work, 3).results())
        array = submitit.AutoExecutor(folder="log/%j")
        array.update_parameters(timeout_min=5, slurm_array_parallelism=2, gpus_per_node=1)
        print([job.result()[0] for job in array.map_array(work, [1, 2, 3])])

        def broken():
            raise ValueError("as it must")

        try:
            array.submit(broken).result()
        except submitit.core.utils.FailedJobError as error:
            print("as it must" in str(error))
    """)
    assert found == [str([(9, rank, 4, 2) for rank in range(4)]), "[1, 4, 9]", "True"]


@needs("submitit")
def test_submitit_goes_on_from_a_checkpoint_after_its_warning(site: Site) -> None:
    found = site.script("""
        import os, time
        import submitit

        class Work:
            def __call__(self):
                if os.environ.get("SLURM_RESTART_COUNT"):
                    return "went on after restart " + os.environ["SLURM_RESTART_COUNT"]
                open("started", "w").close()
                time.sleep(300)

            def checkpoint(self):
                return submitit.helpers.DelayedSubmission(self)

        executor = submitit.AutoExecutor(folder="log/%j")
        executor.update_parameters(timeout_min=5)
        job = executor.submit(Work())
        while not os.path.exists("started"):
            time.sleep(0.1)
        job._interrupt(timeout=True)
        print(job.result())
    """)
    assert found == ["went on after restart 1"]


@needs("dask_jobqueue")
def test_dask_jobqueue_starts_workers_and_ends_them(site: Site) -> None:
    found = site.script("""
        from dask.distributed import Client
        from dask_jobqueue import SLURMCluster

        if __name__ == "__main__":
            cluster = SLURMCluster(cores=2, memory="1GB", walltime="00:10:00", log_directory="log")
            cluster.scale(jobs=2)
            client = Client(cluster)
            client.wait_for_workers(2, timeout=120)
            print(client.submit(lambda x: x + 1, 41).result())
            client.close()
            cluster.close()
    """)
    assert found[-1] == "42"
    assert site.run("squeue", "--noheader", "--states=PENDING,RUNNING") == ""


@needs("simple_slurm")
def test_simple_slurm_submits_and_reads_the_queue(site: Site) -> None:
    found = site.script("""
        from simple_slurm import Slurm

        slurm = Slurm(cpus_per_task=1, job_name="name", hold=True)
        job = slurm.sbatch("hostname", verbose=False)
        slurm.squeue.update_squeue()
        print(job, [(one["NAME"], one["ST"]) for one in slurm.squeue.jobs.values()])
        slurm.scancel.cancel_job(job)
    """)
    assert found[-1] == "1 [('name', 'PD')]"
    assert site.run("squeue", "--noheader") == ""


@needs("snakemake")
def test_snakemake_runs_a_workflow(site: Site) -> None:
    partition = site.run("sinfo", "--noheader", "-o", "%R").strip()
    (site.work / "Snakefile").write_text(f"""
PLACE = dict(slurm_account="root", slurm_partition="{partition}", mem_mb=100, runtime=5)
rule whole:
    input: "whole.txt"
rule part:
    output: "{{x}}.part"
    resources: **PLACE
    shell: "echo $SLURM_JOB_ID > {{output}}"
rule join:
    input: expand("{{x}}.part", x=[1, 2])
    output: "whole.txt"
    resources: **PLACE
    shell: "cat {{input}} > {{output}}"
""")
    quick = ("--slurm-init-seconds-before-status-checks", "3", "--seconds-between-status-checks", "2")
    site.run("snakemake", "--executor", "slurm", "--jobs", "4", "--latency-wait", "30", *quick, "whole")
    first, second = (site.work / "whole.txt").read_text().split()
    assert sorted((int(first), int(second))) == [1, 2]


@needs("psij")
def test_psij_runs_waits_for_and_cancels_jobs(site: Site) -> None:
    found = site.script("""
        import pathlib
        from datetime import timedelta

        from psij import Job, JobAttributes, JobExecutor, JobSpec, JobState, ResourceSpecV1

        executor = JobExecutor.get_instance("slurm")
        size = ResourceSpecV1(node_count=2, processes_per_node=2, cpu_cores_per_process=1)
        limit = JobAttributes(duration=timedelta(minutes=5))
        spec = JobSpec(executable="/bin/sh", arguments=["-c", "echo $SLURM_NNODES $SLURM_NTASKS"], resources=size,
                       attributes=limit, launcher="single", stdout_path=pathlib.Path("out.txt").absolute())
        job = Job(spec)
        executor.submit(job)
        print(job.wait(timedelta(seconds=200)).state.name, open("out.txt").read().strip())
        long = Job(JobSpec(executable="/bin/sleep", arguments=["300"], attributes=limit, launcher="single"))
        executor.submit(long)
        long.wait(timedelta(seconds=200), target_states=[JobState.ACTIVE])
        long.cancel()
        print(long.wait(timedelta(seconds=200)).state.name)
        wrong = Job(JobSpec(executable="/bin/sh", arguments=["-c", "exit 3"], attributes=limit, launcher="single"))
        executor.submit(wrong)
        status = wrong.wait(timedelta(seconds=200))
        print(status.state.name, status.exit_code)
    """)
    assert found == ["COMPLETED 2 4", "CANCELED", "FAILED 3"]


def processes(said: str) -> list[tuple[int, int, str]]:
    """Number, total and node of each process, as the programs of the training tests print them."""
    lines = [line.split() for line in said.splitlines() if line.startswith("process ")]
    return sorted((int(words[1]), int(words[3]), words[5]) for words in lines)


@needs("mpi4py")
@pytest.mark.parametrize("inside", [False, True])
def test_mpi4py_finds_its_ranks_under_srun(site: Site, inside: bool) -> None:
    """Also in a container of the machine's own files."""
    if inside and not shutil.which("bwrap"):
        pytest.skip("needs bubblewrap")
    places = f"{PROGRAMS}:{PROGRAMS}:ro,{Path(PYTHON).parents[1]}:{Path(PYTHON).parents[1]}:ro"
    container = ("--container-image=/", f"--container-mounts={places}") if inside else ()
    program = str(PROGRAMS / "mpi_sum.py")
    said = site.run("srun", "--mpi=pmi2", "-N2", "--ntasks-per-node=2", *container, PYTHON, program)
    assert [rank for rank, total, _ in processes(said) if total == 4] == [0, 1, 2, 3]
    assert len({node for _, _, node in processes(said)}) == 2


@needs("lightning")
def test_lightning_trains_on_two_nodes_by_the_variables_of_slurm(site: Site) -> None:
    """As in Lightning's own manual: sbatch with srun, which finds the addresses by itself."""
    (site.work / "job.sh").write_text(f"#!/bin/bash\nsrun {PYTHON} {PROGRAMS / 'lightning_fit.py'}\n")
    site.run("sbatch", "--wait", "-N2", "--ntasks-per-node=2", "-o", "out.txt", "job.sh")
    ranks = processes((site.work / "out.txt").read_text())
    assert [(rank, total) for rank, total, _ in ranks] == [(rank, 4) for rank in range(4)]
    assert len({node for _, _, node in ranks}) == 2


@needs("accelerate")
def test_accelerate_launches_on_two_nodes(site: Site) -> None:
    """As in the examples of accelerate: a launcher on each node, told of the first node and of its own number."""
    (site.work / "job.sh").write_text(f"""#!/bin/bash
export LAUNCHER="accelerate launch --multi_gpu --num_processes 4 --num_machines $SLURM_NNODES \\
    --mixed_precision no --dynamo_backend no --main_process_ip localhost --main_process_port {free_port()}"
srun bash -c "$LAUNCHER --machine_rank \\$SLURM_NODEID {PROGRAMS / "accelerate_loop.py"}"
""")
    site.run("sbatch", "--wait", "-N2", "--ntasks-per-node=1", "-c2", "-o", "out.txt", "job.sh")
    said = (site.work / "out.txt").read_text()
    assert [(rank, total) for rank, total, _ in processes(said)] == [(rank, 4) for rank in range(4)], said
    assert len({node for _, _, node in processes(said)}) == 2


@needs("main_exporter")
def test_an_exporter_counts_the_queue(site: Site) -> None:
    """job-queue-exporter runs `squeue` itself, and always listens on port 8000."""
    address = ("127.0.0.1", 8000)
    with socket.socket() as probe:
        if probe.connect_ex(address) == 0:
            pytest.skip("port 8000 of this machine is in use")
    for name, options in (("held", ["-H"]), ("runs", [])):
        site.run("sbatch", "-J", name, *options, "-o", "/dev/null", "--wrap", "sleep 200")
    queue = "squeue --all -h --format=%A,%j,%a,%g,%u,%P,%v,%D,%C,%T,%V,%M"
    program = str(Path(PYTHON).with_name("main_exporter"))
    exporter = subprocess.Popen([program, "--command", queue], env=site.environ, cwd=site.work)
    try:
        until(lambda: len(_jobs(address)) == 2, "both jobs are counted")
        assert {family.labels["job_type"]: family.value for family in _jobs(address)} == {"RUNNING": 1, "PENDING": 1}
    finally:
        exporter.kill()
        exporter.wait()


def _jobs(address: tuple[str, int]) -> list[Sample]:
    """The exporter's samples of jobs, as Prometheus reads them; none until it serves."""
    try:
        page = httpx.get(f"http://{address[0]}:{address[1]}/metrics", timeout=30).text
    except httpx.TransportError:
        return []
    return [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "squeue_jobs"
    ]
