"""srun --mpi=pmi2: programs that speak PMI-1 and PMI-2 over PMI_FD, and real MPI where MPICH is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.commands import lines, run


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes for all tests here."""
    made = Cluster(nodes=2)
    try:
        yield made.start()
    finally:
        made.close()


#: what both clients begin with
HEAD = """
import os, socket
pmi = socket.socket(fileno=int(os.environ["PMI_FD"]))
rank, size = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
taken = pmi.makefile("rb")
"""

FIRST = (
    HEAD
    + """
def ask(text):
    pmi.sendall(text.encode() + b"\\n")
    return dict(word.split("=", 1) for word in taken.readline().decode().split())
assert ask("cmd=init pmi_version=1 pmi_subversion=1")["rc"] == "0"
name = ask("cmd=get_my_kvsname")["kvsname"]
ask(f"cmd=put kvsname={name} key=k{rank} value=v{rank}")
assert ask("cmd=barrier_in")["cmd"] == "barrier_out"
got = ask(f"cmd=get kvsname={name} key=k{(rank + 1) % size}")["value"]
missing = ask(f"cmd=get kvsname={name} key=nosuch")["rc"]
mapping = ask(f"cmd=get kvsname={name} key=PMI_process_mapping")["value"]
print(rank, size, got, missing, mapping, ask("cmd=finalize")["cmd"])
"""
)

SECOND = (
    HEAD
    + """
def ask(*pairs):
    body = "".join(pair + ";" for pair in pairs).encode()
    pmi.sendall(b"%6d" % len(body) + body)
    return dict(word.split("=", 1) for word in taken.read(int(taken.read(6))).decode().split(";") if word)
pmi.sendall(b"cmd=init pmi_version=2 pmi_subversion=0\\n")
assert b"rc=0" in taken.readline()
full = ask("cmd=fullinit")
assert (full["rank"], full["size"]) == (str(rank), str(size))
for turn in range(3):
    ask("cmd=kvs-put", f"key=k{turn}.{rank}", f"value={'x' * 200000}{turn}.{rank}")
    assert ask("cmd=kvs-fence")["rc"] == "0"
    other = ask("cmd=kvs-get", f"key=k{turn}.{(rank + 1) % size}")
    assert other["value"] == "x" * 200000 + f"{turn}.{(rank + 1) % size}", other["value"][-20:]
if os.environ["SLURM_LOCALID"] == "0":
    ask("cmd=info-putnodeattr", "key=here", "value=" + os.environ["SLURMD_NODENAME"])
here = ask("cmd=info-getnodeattr", "key=here", "wait=TRUE")["value"]
print(rank, here == os.environ["SLURMD_NODENAME"], ask("cmd=kvs-get", "key=nosuch")["found"], ask("cmd=spawn")["rc"])
ask("cmd=finalize")
"""
)


def test_entries_reach_the_tasks_of_all_nodes_by_pmi_1(cluster: Cluster) -> None:
    (cluster.work / "first.py").write_text(FIRST)
    done = run(cluster, "srun", "--mpi=pmi2", "-N2", "-n4", "--ntasks-per-node=2", "python3", "first.py")
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(lines(done.stdout)) == [
        f"{rank} 4 v{(rank + 1) % 4} -1 (vector,(0,2,2)) finalize_ack" for rank in range(4)
    ]


def test_components_of_a_heterogeneous_job_are_one_world(cluster: Cluster) -> None:
    (cluster.work / "first.py").write_text(FIRST)
    job = ("-N1", "-n2", "python3", "first.py", ":", "-N1", "-n1", "python3", "first.py")
    done = run(cluster, "srun", "--quiet", "--mpi=pmi2", *job)
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(lines(done.stdout)) == [
        f"{rank} 3 v{(rank + 1) % 3} -1 (vector,(0,1,2),(1,1,1)) finalize_ack" for rank in range(3)
    ]


def test_fence_after_fence_of_large_entries_by_pmi_2(cluster: Cluster) -> None:
    (cluster.work / "second.py").write_text(SECOND)
    done = run(
        cluster, "srun", "--mpi=pmi2", "-N2", "-n6", "--ntasks-per-node=3", "-m", "cyclic", "python3", "second.py"
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(lines(done.stdout)) == [f"{rank} True FALSE 1" for rank in range(6)]


def test_an_abort_ends_the_step_on_every_node(cluster: Cluster) -> None:
    (cluster.work / "abort.py").write_text(
        HEAD
        + """
import time
pmi.sendall(b"cmd=init pmi_version=1 pmi_subversion=1\\n")
taken.readline()
if rank == 1:
    pmi.sendall(b"cmd=abort exitcode=3\\n")
time.sleep(500)
"""
    )
    done = run(cluster, "srun", "--mpi=pmi2", "-N2", "-n2", "python3", "abort.py")
    assert done.returncode == 137
    assert b"task 0: Killed" in done.stderr, "as with Slurm, which sends SIGKILL at once"


def test_what_is_no_pmi_loses_its_connection_and_nothing_else(cluster: Cluster) -> None:
    script = f"{HEAD}\npmi.sendall(b'cmd=init pmi_version=2\\n'); taken.readline()\n"
    script += "pmi.sendall(b'garbage!'); print(taken.read())"
    (cluster.work / "garbage.py").write_text(script)
    done = run(cluster, "srun", "--mpi=pmi2", "python3", "garbage.py")
    assert (done.returncode, done.stdout) == (0, b"b''\n")


PROGRAM = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d %d %d\\n", rank, size, sum);
    MPI_Finalize();
    return 0;
}
"""


def test_a_real_mpi_program_runs_over_two_nodes(cluster: Cluster) -> None:
    compiler = shutil.which("mpicc.mpich")
    if compiler is None:
        pytest.skip("MPICH is not installed")
    (cluster.work / "sum.c").write_text(PROGRAM)
    subprocess.run([compiler, "sum.c", "-o", "sum"], cwd=cluster.work, check=True, timeout=100)
    done = run(cluster, "srun", "--mpi=pmi2", "-N2", "-n4", "./sum")
    assert done.returncode == 0, done.stderr
    assert sorted(lines(done.stdout)) == [f"{rank} 4 6" for rank in range(4)]


LOOK_AT_EACH_OTHER = """
other=$((1 - SLURM_PROCID))
echo $$ > new.$SLURM_PROCID; mv new.$SLURM_PROCID pid.$SLURM_PROCID
until test -e pid.$other; do sleep 0.02; done
ls /proc/$(cat pid.$other)/fd > listed.$SLURM_PROCID && echo may
touch done.$SLURM_PROCID
until test -e done.$other; do sleep 0.02; done
"""


def test_tasks_of_a_node_may_look_into_each_other(cluster: Cluster) -> None:
    """As MPI does through shared memory (ptrace access mode); names of virtual nodes must not stand in the way."""
    done = run(cluster, "srun", "-N1", "-n2", "sh", "-c", LOOK_AT_EACH_OTHER)
    assert (done.returncode, lines(done.stdout)) == (0, ["may", "may"]), done.stderr
