"""srun --mpi=pmix: programs of Open MPI, and clients of libpmix itself, where these are installed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.stepd.pmix import binding
from spritz.stepd.pmix.process import NAME
from tests.e2e.cluster import Cluster, command_name, is_alive, parent_of, until
from tests.e2e.commands import lines, run, start


def _library_version() -> int:
    try:
        return binding.version(binding.load())
    except binding.PmixError:
        return 0


VERSION = _library_version()
pytestmark = pytest.mark.skipif(not VERSION, reason="no PMIx library")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four nodes for all tests here."""
    made = Cluster(nodes=4, cpus=4, extra="SchedulerParameters=hetjob_share_nodes")
    try:
        yield made.start()
    finally:
        made.close()


MPI_PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int rank, size, sum, here, length;
    char name[MPI_MAX_PROCESSOR_NAME];
    MPI_Comm node;
    if (!strcmp(how, "early") && !strcmp(getenv("SLURM_PROCID"), "1")) exit(7);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!strcmp(how, "abort") && rank == 1) MPI_Abort(MPI_COMM_WORLD, 3);
    if (!strcmp(how, "leave") && rank == 1) _exit(5);
    if (!strcmp(how, "stay")) { puts("here"); fflush(stdout); }
    if (*how) pause();
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &here);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Get_processor_name(name, &length);
    int *number, has;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &has);
    printf("%d %d %d %d program %d\n", rank, size, sum, here, has ? *number : -1);
    MPI_Finalize();
    return 0;
}
"""


PORT_PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, remote;
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm half, both;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank < size / 2, rank, &half);
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Publish_name("here", MPI_INFO_NULL, port);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank < size / 2) {
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &both);
    } else {
        if (rank == size / 2) MPI_Lookup_name("here", MPI_INFO_NULL, port);
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &both);
    }
    MPI_Comm_remote_size(both, &remote);
    printf("%d %d\n", rank, remote);
    MPI_Comm_disconnect(&both);
    MPI_Finalize();
    return 0;
}
"""


def compiled(cluster: Cluster, name: str, source: str) -> str:
    """An MPI program, for Open MPI."""
    compiler = shutil.which("mpicc.openmpi")
    if compiler is None:
        pytest.skip("Open MPI is not installed")
    (cluster.work / f"{name}.c").write_text(source)
    subprocess.run([compiler, f"{name}.c", "-o", name], cwd=cluster.work, check=True, timeout=100)
    return f"./{name}"


@pytest.fixture(scope="module")
def program(cluster: Cluster) -> str:
    """The program of most tests here."""
    return compiled(cluster, "sum", MPI_PROGRAM)


def srun(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """To its end; between nodes by the one interface that every machine has."""
    return run(cluster, "srun", *arguments, OMPI_MCA_btl_tcp_if_include="lo")


def _serves(cluster: Cluster, pid: int) -> bool:
    try:
        directory = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return False  # it is gone
    return directory.startswith(str(cluster.root)) and command_name(pid) == NAME and is_alive(pid)


def leftovers(cluster: Cluster) -> list[str]:
    """Processes that serve, directories of theirs, and shared memory of tasks."""
    found = [pid for pid in os.listdir("/proc") if pid.isdigit() and _serves(cluster, int(pid))]
    found += [str(path) for path in cluster.root.glob("spool/*/*/pmix")]
    return found + [str(path) for name in cluster.names for path in Path("/dev/shm").glob(f"vader_segment.{name}.*")]


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 4), (2, 4), (4, 8)])
def test_an_mpi_program_runs_over_nodes(cluster: Cluster, program: str, nodes: int, tasks: int) -> None:
    each = tasks // nodes
    done = srun(cluster, "--mpi=pmix", f"-N{nodes}", f"-n{tasks}", f"--ntasks-per-node={each}", program)
    assert done.returncode == 0, done.stderr
    total = sum(range(tasks))
    assert sorted(lines(done.stdout)) == [f"{rank} {tasks} {total} {each} program 0" for rank in range(tasks)]
    until(lambda: not leftovers(cluster), lambda: f"nothing is left: {leftovers(cluster)}")


def test_components_of_a_heterogeneous_job_are_one_world(cluster: Cluster, program: str) -> None:
    done = srun(cluster, "--mpi=pmix", "-w", "n1", "-n2", program, ":", "-w", "n[2-3]", "-n2", program)
    assert done.returncode == 0, done.stderr
    together = {0: "2 program 0", 1: "2 program 0", 2: "1 program 1", 3: "1 program 1"}
    assert sorted(lines(done.stdout)) == [f"{rank} 4 6 {here}" for rank, here in together.items()]
    # Components on one node use its shared memory, each served by a server of its own.
    done = srun(cluster, "--mpi=pmix", "-w", "n1", "-n2", program, ":", "-w", "n1", "-n2", program)
    assert done.returncode == 0, done.stderr
    assert sorted(lines(done.stdout)) == [f"{rank} 4 6 4 program {rank // 2}" for rank in range(4)]
    refused = srun(cluster, "--mpi=pmix", "-n1", program, ":", "--mpi=none", "-n1", program)
    assert refused.returncode == 1
    assert b"option --mpi is not supported by Spritz with a value for each component" in refused.stderr


def test_tasks_find_each_other_by_a_published_port(cluster: Cluster) -> None:
    program = compiled(cluster, "port", PORT_PROGRAM)
    done = srun(cluster, "--mpi=pmix", "-N2", "-n3", "--ntasks-per-node=2", program)
    assert done.returncode == 0, done.stderr
    assert sorted(lines(done.stdout)) == ["0 2", "1 1", "2 1"]


def test_mpi_abort_ends_the_step_with_its_status(cluster: Cluster, program: str) -> None:
    done = srun(cluster, "--mpi=pmix", "-N2", "-n4", "--ntasks-per-node=2", program, "abort")
    assert done.returncode == 3, done.stderr
    # In one line if they ended together.
    killed = set(re.findall(rb"n2: tasks? ([\d-]+): Killed", done.stderr))
    assert killed in ({b"2-3"}, {b"2", b"3"}), done.stderr
    until(lambda: not leftovers(cluster), lambda: f"nothing is left: {leftovers(cluster)}")


def test_a_task_that_leaves_without_finalizing_ends_the_step(cluster: Cluster, program: str) -> None:
    done = srun(cluster, "--mpi=pmix", "-N2", "-n4", "--ntasks-per-node=2", program, "leave")
    assert done.returncode == 137, done.stderr
    assert b"mpi/pmix: task 1 is gone, and has not called PMIx_Finalize" in done.stderr
    assert b"task 1: Exited with exit code 5" in done.stderr


def test_a_task_that_dies_before_it_has_met_the_others_is_for_the_user_to_deal_with(
    cluster: Cluster, program: str
) -> None:
    """As in Slurm, the others wait for it; -K and --wait end that."""
    done = srun(cluster, "--mpi=pmix", "-N2", "-n4", "--kill-on-bad-exit", program, "early")
    assert done.returncode in (7, 137, 143), done.stderr
    assert b"task 1: Exited with exit code 7" in done.stderr
    until(lambda: not leftovers(cluster), lambda: f"nothing is left: {leftovers(cluster)}")


def staying(cluster: Cluster, program: str) -> subprocess.Popen[bytes]:
    """Two tasks on two nodes that do not end by themselves."""
    asked = ("--mpi=pmix", "-N2", "-n2", program, "stay")
    return start(cluster, "srun", *asked, OMPI_MCA_btl_tcp_if_include="lo")


def _servers(cluster: Cluster) -> list[int]:
    return [int(pid) for pid in leftovers(cluster) if pid.isdigit()]


def test_nothing_is_left_of_a_step_whose_supervisor_is_killed(cluster: Cluster, program: str) -> None:
    running = staying(cluster, program)
    try:
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(2)] == [b"here\n"] * 2
        servers = _servers(cluster)
        assert len(servers) == 2
        os.kill(parent_of(servers[0]), signal.SIGKILL)
        assert running.wait(100) != 0
    finally:
        running.kill()
        running.communicate()
    until(lambda: not _servers(cluster), "no server is left")
    until(lambda: not list(cluster.root.glob("spool/*/*/pmix")), "no directory of theirs is left")


def test_a_server_that_dies_ends_the_step_and_not_its_supervisor(cluster: Cluster, program: str) -> None:
    running = staying(cluster, program)
    try:
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(2)] == [b"here\n"] * 2
        os.kill(_servers(cluster)[0], signal.SIGKILL)
        _, errors = running.communicate(timeout=100)
    finally:
        running.kill()
    assert running.returncode != 0
    assert b"mpi/pmix: the PMIx server died" in errors
    assert b"missing step" not in errors


def test_a_server_that_cannot_start_is_told_of_and_ends_the_step(cluster: Cluster) -> None:
    done = run(cluster, "srun", "--mpi=pmix", "-N2", "-n2", "sleep", "500", PMIX_MCA_bfrops="nosuch")
    assert done.returncode == 1
    assert b"slurmstepd: error: mpi/pmix: PMIx_server_init: " in done.stderr
    until(lambda: not leftovers(cluster), lambda: f"nothing is left: {leftovers(cluster)}")


def test_mpi_default_and_the_version_s_name_do_as_well(cluster: Cluster) -> None:
    shown = srun(cluster, f"--mpi=pmix_v{VERSION}", "-n1", "printenv", "PMIX_RANK", "PMIX_NAMESPACE")
    assert shown.returncode == 0, shown.stderr
    rank, namespace = lines(shown.stdout)
    assert rank == "0"
    assert namespace.startswith("slurm.pmix.")
    listed = srun(cluster, "--mpi=list")
    assert f"pmix_v{VERSION}" in listed.stdout.decode().split()
    refused = srun(cluster, f"--mpi=pmix_v{9 - VERSION}", "true")
    assert refused.returncode == 1
    assert f"the PMIx library is of version {VERSION}".encode() in refused.stderr


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> str:
    """The client of libpmix, compiled."""
    compiler = shutil.which("cc")
    if compiler is None or shutil.which("pkg-config") is None:
        pytest.skip("no C compiler, or no pkg-config")
    asked = subprocess.run(["pkg-config", "--cflags", "--libs", "pmix"], capture_output=True, text=True, timeout=100)
    if asked.returncode:
        pytest.skip("the headers of OpenPMIx are not installed")
    source = Path(__file__).with_name("pmix_client.c")
    made = [compiler, str(source), "-o", "client", *asked.stdout.split()]
    subprocess.run(made, cwd=cluster.work, check=True, timeout=100)
    return "./client"


def test_tasks_of_several_nodes_exchange_what_the_standard_lets_them(cluster: Cluster, client: str) -> None:
    """Two tasks on n1, two on n2, one on n3."""
    done = srun(cluster, "--mpi=pmix", "-N3", "-n5", "--ntasks-per-node=2", client)
    assert (done.returncode, done.stderr) == (0, b"")
    said: dict[str, list[str]] = {}
    for line in lines(done.stdout):
        rank, _, text = line.partition(" ")
        said.setdefault(rank, []).append(text)
    nodes = {"0": ("n1", 2, 0), "1": ("n1", 2, 1), "2": ("n2", 2, 0), "3": ("n2", 2, 1), "4": ("n3", 1, 0)}
    for rank, (_, local, place) in nodes.items():
        other = str((int(rank) + 1) % 5)
        assert said[rank] == [
            f"fetched of {other}",
            f"collected of {other}",
            *(["again: duplicate key"] if rank == "4" else []),
            "port 17 by 4",
            "now: not found",
            "in time: timeout",
            "gone: not found",
            f"local {local} place {place} app 0 next {nodes[other][0]} {nodes[other][2]}",
            f"peers {nodes[other][1]} nodes n1,n2,n3",
        ]
