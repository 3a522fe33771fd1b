"""--container=BUNDLE with oci.conf: runc runs bundles that are made of this machine's own files.

Facts about Slurm are from 22.05, run with the same bundle and oci.conf.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.commands.job import JobSubmitted
from spritz.model.job.record import ContainerOptions
from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import environment, lines, program, run, start
from tests.e2e.images import make_root
from tests.e2e.people import made_people
from tests.e2e.users import others_can_run

_ID = "%n.%u.%j.%s.%t"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `runc spec` makes it."""
    runc = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if runc is None:
        pytest.skip("runc is not installed")
    made = tmp_path_factory.mktemp("oci") / "bundle"
    make_root(made / "rootfs")
    words = [runc, "spec"] if os.geteuid() == 0 else [runc, "spec", "--rootless"]
    subprocess.run(words, cwd=made, check=True)
    path = made / "config.json"
    configuration = json.loads(path.read_text())
    configuration["process"] |= {"terminal": False, "args": ["cat"]}
    configuration["process"]["env"].append("FROM_BUNDLE=yes")
    path.write_text(json.dumps(configuration))
    tried = subprocess.run(
        [runc, "--root", made.parent / "tried", "run", "tried", "-b", made],
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    if tried.returncode:
        pytest.skip(f"runc does not run here: {tried.stderr.decode()[:200]}")
    return made


def _crun(root: Path) -> str:
    """crun without cgroups of its own, and where it sees version 2 alone: it takes no machine that has both."""
    if os.geteuid() or shutil.which("crun") is None:
        pytest.skip("needs root and crun")
    script = root / "crun"
    inside = "umount -l /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup || exit 9; "
    script.write_text(
        f'#!/bin/sh\nexec unshare -m sh -c \'{inside}exec crun --cgroup-manager=disabled "$@"\' crun "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def _conf(root: Path, kind: str) -> str:
    runc = f"{_crun(root) if kind == 'crun' else 'runc'} --root={root}/runc"
    text = f'RunTimeQuery="{runc} state {_ID}"\nRunTimeKill="{runc} kill -a {_ID}"\n'
    text += f'RunTimeDelete="{runc} delete --force {_ID}"\n'
    if kind in ("run", "crun"):
        return text + f'RunTimeRun="{runc} run -b %b {_ID}"\n'
    return text + f'RunTimeCreate="{runc} create {_ID} -b %b"\nRunTimeStart="{runc} start {_ID}"\n'


@pytest.fixture(
    scope="module", params=["run", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("create", "crun"))]
)
def cluster(request: pytest.FixtureRequest, bundle: Path) -> Iterator[Cluster]:
    made = Cluster(nodes=1)
    (made.conf.parent / "oci.conf").write_text(_conf(made.root, request.param))
    try:
        yield made.start()
    finally:
        made.close()


def _left(cluster: Cluster) -> list[str]:
    """What the runtime, and slurmd, still have of containers."""
    runtime = cluster.root / "runc"
    known = [path.name for path in runtime.iterdir()] if runtime.exists() else []
    return known + [path.name for path in (cluster.root / "spool" / "n1").iterdir() if path.name.startswith("oci")]


def test_tasks_run_in_the_bundle(cluster: Cluster, bundle: Path) -> None:
    before = (bundle / "config.json").read_bytes()
    shell = "cat /etc/where; echo $SLURM_PROCID $SLURM_CONTAINER $FROM_BUNDLE; pwd; cat; exit 3"
    done = run(cluster, "srun", "-n2", f"--container={bundle}", "sh", "-c", shell, PATH=f"{os.environ['PATH']}")
    assert done.returncode == 3, done.stderr
    assert sorted(lines(done.stdout)) == ["/", "/", f"0 {bundle} yes", f"1 {bundle} yes", "inside", "inside"]
    assert _left(cluster) == []
    assert (bundle / "config.json").read_bytes() == before


def test_standard_input_reaches_the_container(cluster: Cluster, bundle: Path) -> None:
    done = run(cluster, "srun", f"--container={bundle}", "cat", stdin="given\n")
    assert (done.returncode, lines(done.stdout)) == (0, ["given"])


@pytest.mark.parametrize("cluster", ["run"], indirect=True)
def test_a_terminal_is_one_inside(cluster: Cluster, bundle: Path) -> None:
    """Unlike in Slurm, which never has one in a container."""
    master, terminal = os.openpty()
    words = [program("srun"), "--pty", f"--container={bundle}", "sh", "-c", "test -t 0 && test -t 1 && cat /etc/where"]
    try:
        subprocess.run(words, stdin=terminal, stdout=terminal, stderr=terminal, env=environment(cluster), timeout=100)
        assert b"inside" in os.read(master, 4096)
    finally:
        os.close(master)
        os.close(terminal)


def test_a_batch_script_runs_in_it_and_its_steps_do_not(cluster: Cluster, bundle: Path) -> None:
    """The script is where Slurm has it."""
    out = cluster.work / "out"
    script = f"#!/bin/sh\n#SBATCH --container={bundle}\ncat /etc/where; echo $0 $1 $SLURM_CONTAINER\n"
    done = run(cluster, "sbatch", "--wait", "--parsable", "-o", str(out), "/dev/stdin", "word", stdin=script)
    assert done.returncode == 0, (done.stderr, out.read_text())
    assert out.read_text().splitlines() == ["inside", f"/tmp/slurm/startup word {bundle}"]
    assert _left(cluster) == []


def test_cancelling_leaves_nothing(cluster: Cluster, bundle: Path) -> None:
    """The first process of a container does not mind SIGTERM, so what ends it is SIGKILL after KillWait."""
    with start(cluster, "srun", "-J", "inside", f"--container={bundle}", "sleep", "1000") as srun:
        number = _running(cluster, "inside")
        cluster.cancel(number)
        srun.communicate(timeout=100)
    cluster.wait_state(number, "CANCELLED")
    assert not cluster.job_processes(number)
    until(lambda: not _left(cluster), "the runtime knows of nothing")


def test_a_killed_supervisor_leaves_no_container(cluster: Cluster, bundle: Path) -> None:
    with start(cluster, "srun", "-J", "orphan", f"--container={bundle}", "sleep", "1000") as srun:
        number = _running(cluster, "orphan")
        os.kill(cluster.supervisor(number), signal.SIGKILL)
        srun.communicate(timeout=100)
    cluster.wait_state(number, "FAILED", "NODE_FAIL", "CANCELLED")
    until(lambda: not cluster.job_processes(number), "nothing of it runs")
    until(lambda: not _left(cluster), "the runtime knows of nothing")


def _running(cluster: Cluster, name: str) -> int:
    """Number of the job, when its container runs."""
    until(lambda: [job for job in cluster.jobs().values() if job.spec.name == name and job.started_at], "it starts")
    number = next(job.id for job in cluster.jobs().values() if job.spec.name == name)
    until(lambda: any(map(_sleeps, cluster.job_processes(number))), "it runs inside")
    return number


def _sleeps(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep")
    except OSError:
        return False


@pytest.mark.parametrize("cluster", ["run"], indirect=True)
def test_what_cannot_be_is_said(cluster: Cluster, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    for given, told in (
        ("/nosuch", "unable to open /nosuch/config.json: No such file or directory"),
        (str(tmp_path), "unable to parse"),
    ):
        done = run(cluster, "srun", f"--container={given}", "true")
        assert done.returncode, given
        assert told in done.stderr.decode(), done.stderr
    both = run(cluster, "srun", f"--container={bundle}", "--container-image=/x", "true")
    assert both.returncode
    assert b"is its own image" in both.stderr
    asked = run(cluster, "salloc", f"--container={bundle}", "true")
    assert (asked.returncode, lines(asked.stderr)) == (
        1,
        ["salloc: error: --container requires LaunchParameters=use_interactive_step"],
    )


@pytest.mark.parametrize("cluster", ["run"], indirect=True)
def test_it_is_shown(cluster: Cluster, bundle: Path) -> None:
    with start(cluster, "srun", "-J", "shown", f"--container={bundle}", "sleep", "1000") as srun:
        number = _running(cluster, "shown")
        shown = run(cluster, "scontrol", "show", "job", str(number)).stdout
        assert f"   Container={bundle}" in lines(shown)
        assert f"   Container={bundle}" in lines(run(cluster, "scontrol", "show", "step", f"{number}.0").stdout)
        for words in (("-O", "Container:200"), ("-s", "-O", "Container:200")):
            said = lines(run(cluster, "squeue", "-h", "-j", str(number), *words).stdout)
            assert [line.strip() for line in said] == [str(bundle)]
        found = json.loads(run(cluster, "scontrol", "--json", "show", "job", str(number)).stdout)
        assert found["jobs"][0]["container"] == str(bundle)
        cluster.cancel(number)
        srun.communicate(timeout=100)


def test_without_oci_conf_it_is_a_word_that_is_kept(bundle: Path) -> None:
    """As in Slurm, where a plugin may look at it: any text will do, and tasks run on the node."""
    made = Cluster(nodes=1)
    try:
        made.start()
        done = run(made, "srun", "-n2", "--container=any/thing", "sh", "-c", "echo $SLURM_CONTAINER; pwd")
        assert (done.returncode, set(lines(done.stdout))) == (0, {"any/thing", str(made.work)})
        script = "#!/bin/sh\necho $SLURM_CONTAINER\nsrun -n1 sh -c 'scontrol show step $SLURM_JOB_ID.$SLURM_STEP_ID'\n"
        run(made, "sbatch", "--wait", "--container=/b", "-o", "out", "/dev/stdin", stdin=script)
        said = (made.work / "out").read_text()
        assert said.startswith("/b\n")
        assert "Container=" not in said, "a step of the job is in none"
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.root
def test_another_users_container_has_that_users_rights_and_is_cleaned_up(bundle: Path) -> None:
    """Rootless: root inside is the user outside, which calls the runtime and owns what it keeps."""
    if not others_can_run():
        pytest.skip("other users cannot run this installation")
    made = Cluster(nodes=1)
    (made.conf.parent / "oci.conf").write_text(_conf(made.work, "run"))
    try:
        with made_people("ann") as people:
            ann = people["ann"]
            own = ann.home / "bundle"
            shutil.copytree(bundle / "rootfs", own / "rootfs", symlinks=True)
            subprocess.run(["chown", "-R", f"{ann.uid}:{ann.gid}", own], check=True)
            made.start()
            ann.run("sh", "-c", "cd bundle && PATH=$PATH:/usr/sbin runc spec --rootless")
            configuration = json.loads((own / "config.json").read_text())
            configuration["process"]["terminal"] = False
            (own / "config.json").write_text(json.dumps(configuration))
            seen, options = str(ann.home / "seen"), ContainerOptions(bundle=str(own))
            script = "id -u; cat /etc/where; cat /proc/self/uid_map"
            request = made.request(script, work_dir=str(ann.home), container=options, stdout=seen)
            number = ann.ask(made, request, JobSubmitted).job_id
            assert made.wait_state(number, "COMPLETED", "FAILED").state.value == "COMPLETED", Path(seen).read_text()
            assert Path(seen).read_text().split() == ["0", "inside", "0", str(ann.uid), "1"]
            assert (made.work / "runc").stat().st_uid == ann.uid
            assert not list((made.work / "runc").iterdir())
            assert not list((made.root / "spool" / "n1").glob("oci*"))
    finally:
        made.close()
