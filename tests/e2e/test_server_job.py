"""A batch script's own server: started by a loop of calls, of use to that script alone, ended with its job."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path

from spritz.commandserver.main import open_directory, remove_left_over
from tests.e2e.cluster import Cluster, is_alive, until
from tests.e2e.launched import PATIENCE_SECONDS, Launched

_TWICE = "squeue --version && squeue --version"
#: Until calls are served: a call that is not is written down by the installation's script.
_SERVED = """\
log={log}
until before=$(grep -c ^direct $log); squeue --version >/dev/null; test $(grep -c ^direct $log) = "$before"
do sleep 0.02; done
"""


def script(launched: Launched, text: str, **env: str) -> None:
    """As slurmd starts it: it leads a session."""
    subprocess.run(
        ["sh", "-ec", text],
        env=launched.environment(SLURM_JOB_ID="1", **env),
        check=True,
        timeout=PATIENCE_SECONDS,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )


def test_one_call_in_a_job_starts_no_server(launched: Launched) -> None:
    """It would cost the job more than it gains."""
    script(launched, "squeue --version")
    assert launched.servers() == []


def test_a_task_of_a_step_starts_none(launched: Launched) -> None:
    """A server for each would be too many."""
    script(launched, _TWICE, SLURM_STEP_ID="0")
    assert launched.servers() == []


def test_a_job_with_little_memory_starts_none(launched: Launched) -> None:
    script(launched, _TWICE, SLURM_MEM_PER_NODE="100")
    script(launched, _TWICE, SLURM_MEM_PER_CPU="100", SLURM_CPUS_ON_NODE="2")
    assert launched.servers() == []
    script(launched, _TWICE, SLURM_MEM_PER_CPU="100", SLURM_CPUS_ON_NODE="3")
    until(launched.servers, "a server has said that it is there")


def test_a_server_of_a_job_serves_its_script_alone(launched: Launched) -> None:
    served = _SERVED.format(log=launched.log)
    script(launched, f"{_TWICE}\n{served}")
    (server,) = launched.servers()
    before = len(launched.direct_calls())
    script(launched, "squeue --version")
    launched.run("squeue", "--version")
    assert len(launched.direct_calls()) == before + 2
    assert is_alive(server)


def test_a_server_of_a_job_ends_with_it(launched: Launched, make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster().start()
    steps = "for step in 1 2 3; do srun -n1 printenv SLURM_STEP_ID; done"
    served = _SERVED.format(log=launched.log)
    # The command that submits would leave a server behind, which the job's commands would find.
    done = launched.call(
        ["sbatch", "--wait", "-o", "out", "--wrap", f"unset SPRITZ_NO_SERVER\n{served}{steps}"],
        cwd=cluster.work,
        env={"SLURM_CONF": str(cluster.conf), "SPRITZ_NO_SERVER": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert (cluster.work / "out").read_text().split() == ["0", "1", "2"]
    (server,) = launched.servers()
    assert launched.direct_calls().count("srun") == 0
    # The job has ended, and with it all of its processes.
    until(lambda: not is_alive(server), "the server has ended")


def test_what_servers_of_ended_jobs_left_is_removed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for name in ("commands-ended", "commands-ended.lock", "commands-works", "commands-works.lock"):
        (tmp_path / name).touch()
    with (tmp_path / "commands-works.lock").open() as lock:
        flock(lock, LOCK_EX)
        remove_left_over(open_directory(str(tmp_path)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["commands-works", "commands-works.lock"]
