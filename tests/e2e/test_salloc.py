"""salloc and sbcast on real daemons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from spritz.model.states import JobState
from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import lines, run, start

pytestmark = pytest.mark.usefixtures("no_jobs_left")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with eight CPUs each, for all tests here."""
    made = Cluster(nodes=2)
    try:
        yield made.start()
    finally:
        made.close()


def test_a_command_runs_inside_and_its_status_is_sallocs(cluster: Cluster) -> None:
    done = run(cluster, "salloc", "-N2", "-n4", "sh", "-c", "echo $SLURM_JOB_NODELIST $SLURM_NTASKS; exit 7")
    assert done.returncode == 7
    assert lines(done.stdout) == ["n[1-2] 4"]
    granted, relinquished = lines(done.stderr)
    number = int(granted.removeprefix("salloc: Granted job allocation "))
    assert relinquished == f"salloc: Relinquishing job allocation {number}"
    until(lambda: cluster.job(number).state.ended, "the allocation is given back")


def test_steps_inside_use_the_allocation(cluster: Cluster) -> None:
    done = run(cluster, "salloc", "-Q", "-N2", "-n2", "srun", "-l", "sh", "-c", "echo $SLURM_STEP_ID $SLURMD_NODENAME")
    assert (sorted(lines(done.stdout)), done.stderr) == (["0: 0 n1", "1: 0 n2"], b"")


def test_a_command_that_is_not_there(cluster: Cluster) -> None:
    done = run(cluster, "salloc", "nosuchcommand")
    assert done.returncode == 1
    assert 'salloc: error: _fork_command: Unable to find command "nosuchcommand"' in lines(done.stderr)


@pytest.mark.parametrize(("option", "status", "survives"), [((), 0, True), (("-K",), 1, False)])
def test_a_revoked_allocation_ends_the_command_only_if_told(
    cluster: Cluster, option: tuple[str, ...], status: int, survives: bool
) -> None:
    script = f"echo on; while ! test -e go{status}; do sleep 0.1; done; echo survived"
    running = start(cluster, "salloc", *option, "-J", "revoked", "sh", "-c", script)
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline() == b"on\n"
    run(cluster, "scancel", "-n", "revoked")
    assert any(b"has been revoked." in line for line in iter(running.stderr.readline, b""))
    if survives:
        (cluster.work / f"go{status}").touch()
    out, said = running.communicate(timeout=100)
    assert running.returncode == status
    assert (out, said) == (b"survived\n" if survives else b"", b"")


def test_the_command_sees_what_the_login_shell_sets(cluster: Cluster) -> None:
    """salloc(1) --get-user-env: the least that any login has stands in place of salloc's own."""
    show = "echo $SHELL $SLURM_NTASKS $KEPT"
    done = run(cluster, "salloc", "-Q", "-n2", "--get-user-env", "sh", "-c", show, SHELL="/nosuch", KEPT="kept")
    shell, tasks, kept = lines(done.stdout)[0].split()
    assert (shell != "/nosuch", tasks, kept) == (True, "2", "kept")
    wrong = run(cluster, "salloc", "--get-user-env=many", "true")
    assert wrong.returncode == 255
    assert "Invalid --get-user-env specification" in lines(wrong.stderr)[-1]


def test_an_allocation_without_a_shell_stays(cluster: Cluster) -> None:
    assert run(cluster, "salloc", "--no-shell", "-J", "kept").returncode == 0
    (job,) = [job for job in cluster.jobs().values() if job.spec.name == "kept"]
    assert job.state is JobState.RUNNING
    assert lines(run(cluster, "srun", f"--jobid={job.id}", "echo", "inside").stdout) == ["inside"]
    run(cluster, "scancel", str(job.id))


def test_the_shell_can_be_a_step_on_the_first_node(make_cluster: Callable[..., Cluster]) -> None:
    """slurm.conf(5) LaunchParameters=use_interactive_step; the job's own sizes are kept (--preserve-env)."""
    options = "--interactive --preserve-env sh -c 'echo $SLURMD_NODENAME $SLURM_NTASKS $SLURM_STEP_ID'"
    cluster = make_cluster(extra=f'LaunchParameters=use_interactive_step\nInteractiveStepOptions="{options}"').start()
    done = run(cluster, "salloc", "-N2", "-n4")
    assert (done.returncode, lines(done.stdout)) == (0, ["n1 4 4294967290"])


def test_a_file_is_copied_to_every_node(cluster: Cluster) -> None:
    content = bytes(range(256)) * 3000
    (cluster.work / "source").write_bytes(content)
    script = (
        "sbcast source copy && sbcast source copy; echo $?; sbcast -f -p source copy; sbcast source /nosuch/x; echo $?"
    )
    done = run(cluster, "salloc", "-Q", "-N2", "sh", "-c", script)
    assert lines(done.stdout) == ["1", "1"]
    assert lines(done.stderr) == [
        *(f"sbcast: error: REQUEST_FILE_BCAST(n{n}): File exists" for n in (1, 2)),
        *(f"sbcast: error: REQUEST_FILE_BCAST(n{n}): No such file or directory" for n in (1, 2)),
    ]
    assert (cluster.work / "copy").read_bytes() == content
    assert (cluster.work / "copy").stat().st_mtime == (cluster.work / "source").stat().st_mtime
    assert not list(cluster.work.glob("copy.*"))
    packed = (
        "sbcast -C source packed; sbcast --compress=lz4 source never; echo $?; sbcast -f --compress=none source copy"
    )
    done = run(cluster, "salloc", "-Q", "-N2", "sh", "-c", packed)
    assert (cluster.work / "packed").read_bytes() == content
    assert (lines(done.stdout), "".join(lines(done.stderr)).count("zlib (the default)")) == (["1"], 1)


def test_an_sbcast_whose_job_is_cancelled_ends_and_leaves_nothing(cluster: Cluster) -> None:
    with (cluster.work / "endless").open("wb") as source:
        source.truncate(1 << 40)
    session = start(cluster, "salloc", "-Q", "-N2", "sbcast", "endless", "part")
    until(lambda: len(list(cluster.work.glob("part.*"))) == 2, "both nodes write")
    assert run(cluster, "scancel", "--me").returncode == 0
    _, said = session.communicate(timeout=60)
    assert [line for line in lines(said) if "CANCELLED AT" in line], said
    assert b"Traceback" not in said
    until(lambda: not list(cluster.work.glob("part*")), "what was written is removed")


def test_sbcast_needs_a_job(cluster: Cluster) -> None:
    done = run(cluster, "sbcast", "a", "b")
    assert done.returncode == 1
    assert b"Need a job id to run this command" in done.stderr


def test_sgather_brings_each_nodes_file_here_and_removes_it_there(cluster: Cluster) -> None:
    """sgather(1). The nodes of the test share a file system."""
    work = cluster.work
    make = "srun -N2 -n2 -Q sh -c 'mkdir -p local; echo $SLURMD_NODENAME > local/f'; "
    done = run(cluster, "salloc", "-Q", "-N2", "sh", "-c", f"{make} sgather -kp local/f out/x && sgather -Ckr local d")
    assert (done.returncode, done.stderr) == (0, b"")
    assert {path.name for path in (work / "out").iterdir()} == {"x.n1", "x.n2"}
    assert (work / "out/x.n1").read_bytes() == (work / "d.n2/f").read_bytes() == (work / "local/f").read_bytes()
    assert int((work / "out/x.n1").stat().st_mtime) == int((work / "local/f").stat().st_mtime)
    done = run(cluster, "salloc", "-Q", "-N1", "sh", "-c", "sgather local/f taken; sgather -f local/f no && echo ok")
    assert (done.stdout, (work / "local/f").exists(), list(work.glob("no.*"))) == (b"ok\n", False, [])
    done = run(cluster, "salloc", "-Q", "-N1", "sgather", "local/f", "no")
    assert (done.returncode, done.stderr.count(b"local/f: not a file that can be copied")) == (1, 1)
    (work / "plain").touch()
    done = run(cluster, "salloc", "-Q", "-N1", "sgather", "-k", "plain", "plain/x")
    assert done.returncode == 1
    assert re.fullmatch(rb"sgather: error: n1: can not write \S+/plain/x.n1: Not a directory\n", done.stderr)


def test_sgather_needs_a_job_and_two_names(cluster: Cluster) -> None:
    assert b"only valid from within a Slurm job" in run(cluster, "sgather", "a", "b").stderr
    assert b"Need two file names, have 1 names" in run(cluster, "sgather", "a").stderr
    assert run(cluster, "sgather", "--help").stdout.startswith(b"Usage: sgather [OPTIONS] SOURCE DEST")
