"""Commands through the command server do what they do without it.

Each test compares a served call with a direct one, or looks at what a caller sees. See docs/decisions/0168.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, is_alive, until
from tests.e2e.launched import Launched, build, child_of
from tests.unit.cli.site import Site, open_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A controller with four nodes in this process."""
    directory = tmp_path / "site"
    directory.mkdir()
    with open_site(directory) as site:
        site.environ["SLURM_CONF"] = str(directory / "slurm.conf")
        yield site


#: what is added to the environment: nothing, or that no server is wanted
BOTH: tuple[dict[str, str], ...] = ({}, {"SPRITZ_NO_SERVER": "1"})


def both(launched: Launched, *argv: str | bytes, stdin: bytes = b"", env: dict[str, str] | None = None) -> bytes:
    """What both ways print, which is the same, with the same status. The call must have been served."""
    launched.warm()
    before = len(launched.direct_calls())
    served = launched.call(argv, stdin=stdin, env=env)
    assert len(launched.direct_calls()) == before, "it was not served"
    direct = launched.call(argv, stdin=stdin, env={**(env or {}), "SPRITZ_NO_SERVER": "1"})
    assert len(launched.direct_calls()) == before + 1, "it was not direct"
    assert (served.returncode, served.stdout, served.stderr) == (direct.returncode, direct.stdout, direct.stderr)
    return served.stdout + served.stderr


def test_a_first_call_runs_by_itself_and_leaves_a_server_for_the_next(launched: Launched) -> None:
    first = launched.run("squeue", "--version")
    assert (first.returncode, first.stdout) == (0, b"slurm 25.05.0\n")
    assert launched.direct_calls() == ["squeue"]
    server = launched.warm()
    assert launched.servers() == [server]
    info = launched.socket.stat()
    assert (info.st_mode & 0o777, info.st_uid) == (0o600, os.geteuid())
    assert launched.socket.parent.stat().st_mode & 0o777 == 0o700


def test_a_command_is_known_by_its_own_name(launched: Launched) -> None:
    """To ps and pkill, although its file executes the launcher; argv[0] is the caller's word and counts for nothing."""
    if not (launched.directory / "spritz-launcher").exists():
        pytest.skip("no shim for this processor")
    launched.warm()
    process = subprocess.Popen(
        ["other"],
        executable=launched.directory / "sbatch",
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=launched.environment(SLURM_CONF="/nowhere/slurm.conf"),
    )
    path = Path(f"/proc/{process.pid}")
    try:
        child_of(process, launched.servers()[-1])
        assert (path / "comm").read_text() == "sbatch\n"
        assert (path / "cmdline").read_bytes().split(b"\0")[0] == os.fsencode(launched.directory / "sbatch")
    finally:
        process.communicate(timeout=60)
    assert process.returncode == 1


def test_answers_errors_and_statuses_are_the_same(launched: Launched, site: Site) -> None:
    job = site.submit(hold=True)
    conf = site.environ["SLURM_CONF"]
    assert str(job).encode() in both(launched, "squeue", env={"SLURM_CONF": conf})
    assert b"n[1-4]" in both(launched, "sinfo", env={"SLURM_CONF": conf})
    assert b"JobId=" in both(launched, "scontrol", "show", "job", str(job), env={"SLURM_CONF": conf})
    assert b"Invalid job id" in both(launched, "scontrol", "show", "job", "999", env={"SLURM_CONF": conf})
    assert b"unrecognized" in both(launched, "squeue", "--nonsense", env={"SLURM_CONF": conf})
    assert b"n1\nn2" in both(launched, "scontrol", "show", "hostnames", "n[1-2]")
    assert b"No command given" in both(launched, "srun", env={"SLURM_CONF": conf})
    both(launched, "squeue", env={"SLURM_CONF": "/nowhere/slurm.conf"})


def test_arguments_and_environment_may_be_any_bytes(launched: Launched) -> None:
    assert b"\xff\xfe" in both(launched, "scontrol", "show", "hostnames", b"n\xff\xfe")
    both(launched, b"squeue", b"\xff")
    both(launched, "scontrol", "show", "hostnames", env={"BIG": "x" * 120_000, "OTHER": "\udcff\n="})
    many = {f"MANY{number}": "y" * 30_000 for number in range(40)}
    assert b"n3" in both(launched, "scontrol", "show", "hostnames", "n3", env=many)


def test_a_job_gets_the_callers_surroundings(launched: Launched, cluster: Cluster) -> None:
    """Directory, umask, limits, environment, session and command line as sbatch sends them."""
    launched.warm()
    before = len(launched.direct_calls())
    script = "umask 027; ulimit -Sn 77; ulimit -c 0; exec sbatch -H -o out-%j --wrap 'printenv MARK; umask; ulimit -n'"
    numbers = []
    for more in BOTH:
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=cluster.work,
            env=launched.environment(SLURM_CONF=str(cluster.conf), MARK="\udcfe", **more),
            capture_output=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr
        numbers.append(int(done.stdout.split()[-1]))
    assert len(launched.direct_calls()) == before + 1
    served, direct = (cluster.job(number).spec for number in numbers)
    assert served.umask == direct.umask == 0o027
    assert served.work_dir == direct.work_dir == str(cluster.work)
    assert served.limits == direct.limits
    assert {limit.name: limit.soft for limit in served.limits}["NOFILE"] == 77
    assert served.submit_line == direct.submit_line
    assert served.submit_session == direct.submit_session == os.getsid(0)
    done = launched.run("scontrol", "release", ",".join(map(str, numbers)), SLURM_CONF=str(cluster.conf))
    assert done.returncode == 0, done.stderr
    outputs = []
    for number in numbers:
        cluster.wait_state(number, "COMPLETED")
        outputs.append((cluster.work / f"out-{number}").read_bytes())
    assert outputs[0] == outputs[1] == b"\xfe\n0027\n77\n"


def test_steps_have_the_callers_streams(launched: Launched, cluster: Cluster) -> None:
    conf = str(cluster.conf)
    assert both(launched, "srun", "-n1", "cat", stdin=b"a\nb\n", env={"SLURM_CONF": conf}) == b"a\nb\n"
    both(launched, "srun", "-n1", "sh", "-c", "echo out; exit 7", env={"SLURM_CONF": conf})
    script = "srun -n2 -l hostname <&- | sort; srun -n1 cat </etc/hostname >file; srun -n1 sh -c 'kill -9 $$'; echo $?"
    outputs = []
    for more in BOTH:
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=cluster.work,
            env=launched.environment(SLURM_CONF=conf, **more),
            capture_output=True,
            timeout=100,
        )
        outputs.append((done.stdout, (cluster.work / "file").read_bytes()))
    assert outputs[0] == outputs[1]


def test_commands_inside_a_job_use_a_server_that_is_there(
    launched: Launched, make_cluster: Callable[..., Cluster]
) -> None:
    # With private hosts a job has a mount namespace of its own, and files that the server does not see.
    cluster = make_cluster(slurmd_parameters="config_overrides").start()
    launched.warm()
    before = len(launched.direct_calls())
    script = "srun -n2 printenv SLURM_PROCID | sort; squeue -h | wc -l"
    done = launched.call(
        ["sbatch", "--wait", "-n2", "-o", "out", "--wrap", script],
        cwd=cluster.work,
        env={"SLURM_CONF": str(cluster.conf)},
    )
    assert done.returncode == 0, done.stderr
    assert (cluster.work / "out").read_text().split() == ["0", "1", "1"]
    assert len(launched.direct_calls()) == before


def test_a_removed_directory_is_no_reason_to_fail(launched: Launched) -> None:
    launched.warm()
    script = 'mkdir gone && cd gone && rmdir ../gone && squeue --version && echo "$PWD"'
    done = subprocess.run(
        ["sh", "-c", script], cwd=launched.runtime, env=launched.environment(), capture_output=True, timeout=100
    )
    assert done.stdout.startswith(b"slurm 25.05.0\n"), done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_stay_closed(launched: Launched, closed: str) -> None:
    launched.warm()
    before = len(launched.direct_calls())

    def status(**more: str) -> tuple[int, bytes, bytes]:
        done = subprocess.run(
            ["sh", "-c", f"squeue --version {closed}; echo $?; squeue --nonsense {closed}; echo $?"],
            env=launched.environment(**more),
            capture_output=True,
            timeout=100,
        )
        return done.returncode, done.stdout, done.stderr

    served = status()
    assert len(launched.direct_calls()) == before
    assert served == status(SPRITZ_NO_SERVER="1")


def test_a_pipe_that_is_closed_early_ends_a_repeating_command(launched: Launched, site: Site) -> None:
    launched.warm()
    done = subprocess.run(
        ["sh", "-c", "squeue -i 1 | head -1"],
        env=launched.environment(SLURM_CONF=site.environ["SLURM_CONF"]),
        capture_output=True,
        timeout=100,
    )
    assert len(done.stdout.splitlines()) == 1


def test_a_server_that_starts_holds_no_pipe_of_the_callers(launched: Launched) -> None:
    """`$(squeue --version)` must come back although the first call leaves a server behind."""
    done = subprocess.run(
        ["sh", "-c", "text=$(squeue --version 2>&1); echo [$text]"],
        env=launched.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
    )
    assert done.stdout == b"[slurm 25.05.0]\n"
    until(launched.servers, "a server has said that it is there")
    assert len(launched.servers()) == 1


def test_other_descriptors_and_interactive_commands_run_directly(launched: Launched) -> None:
    launched.warm()
    before = len(launched.direct_calls())
    for words in (
        ["sbatch", "/dev/fd/0"],
        ["salloc", "--version"],
        ["scontrol", "-a"],
        ["sbatch", "--export-file=3", "--version"],
        ["srun", "--pty", "--version"],
    ):
        launched.run(*words, SLURM_CONF="/nowhere")
    launched.run("squeue", "--version", LANG="de_DE.ISO-8859-1")
    launched.run("squeue", "--version", PYTHONIOENCODING="latin-1")
    assert launched.direct_calls()[before:] == ["sbatch", "salloc", "scontrol", "sbatch", "srun", "squeue", "squeue"]


def test_a_signal_ends_a_command_as_it_would_without_a_server(launched: Launched, site: Site) -> None:
    launched.warm()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        statuses = []
        for more in BOTH:
            process = subprocess.Popen(
                [launched.directory / "squeue", "-i", "30"],
                bufsize=0,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=launched.environment(SLURM_CONF=site.environ["SLURM_CONF"], **more),
                start_new_session=True,
            )
            assert process.stdout is not None
            assert process.stdout.read(1), "it is at work"
            process.send_signal(number)
            statuses.append(process.wait(100))
            process.stdout.close()
        assert statuses == [-number, -number]


def test_a_killed_launcher_takes_its_command_along(launched: Launched, site: Site) -> None:
    server = launched.warm()
    process = subprocess.Popen(
        [launched.directory / "squeue", "-i", "30"],
        bufsize=0,
        stdout=subprocess.PIPE,
        env=launched.environment(SLURM_CONF=site.environ["SLURM_CONF"]),
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.kill()
    process.wait()
    # The pipe ends when the child does, which holds its other end.
    assert process.stdout.read() is not None
    process.stdout.close()
    assert is_alive(server)


def test_ignored_signals_stay_ignored(launched: Launched, site: Site) -> None:
    """As under nohup, or in the background of a script."""
    launched.warm()
    process = subprocess.Popen(
        ["sh", "-c", "trap '' HUP USR1; exec squeue -i 30"],
        bufsize=0,
        stdout=subprocess.PIPE,
        env=launched.environment(SLURM_CONF=site.environ["SLURM_CONF"]),
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(100) == -signal.SIGTERM
    process.stdout.close()


def test_two_hundred_at_once(launched: Launched) -> None:
    launched.warm()
    done = subprocess.run(
        ["sh", "-c", "for i in $(seq 200); do scontrol show hostnames n[1-2],m$i & done; wait"],
        env=launched.environment(),
        capture_output=True,
        timeout=100,
    )
    lines = done.stdout.decode().split()
    assert (len(lines), lines.count("n1"), done.stderr) == (600, 200, b"")
    assert {f"m{number}" for number in range(1, 201)} < set(lines)
    assert len(launched.servers()) <= 2, "one server, or another for one that was thought to hang"


def test_idle_children_end_with_their_server(launched: Launched) -> None:
    """A server that ends lets its idle children go, and removes its socket."""
    server = launched.warm()
    children = [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
    assert children
    os.kill(server, signal.SIGTERM)
    until(lambda: not any(map(is_alive, [server, *children])), "all of them end")
    assert not launched.socket.exists()
    assert launched.run("squeue", "--version").returncode == 0


@pytest.mark.usefixtures("launching")
def test_a_dynamic_program_is_the_same_launcher(packages: Path, tmp_path: Path) -> None:
    """As it is built where there is no static C library."""
    build(tmp_path / "launcher")
    launched = Launched(tmp_path, tmp_path / "launcher", packages)
    try:
        launched.warm()
        assert b"n1\nn2" in both(launched, "scontrol", "show", "hostnames", "n[1-2]")
        both(launched, "squeue", env={"SLURM_CONF": "/nowhere/slurm.conf"})
    finally:
        launched.close()


def test_a_new_clusters_first_command_is_served(launched: Launched, packages: Path, tmp_path: Path) -> None:
    """`spritz up` leaves a server behind. (This interpreter finds Spritz by PYTHONPATH, which counts.)"""
    spritz = launched.directory / "spritz"
    spritz.write_text(launched.script.read_text().replace("commandserver.direct", "cli.spritz"))
    spritz.chmod(0o755)
    words = ["--dir", str(tmp_path / "cluster")]
    environment = launched.environment(PYTHONPATH=str(packages))
    done = subprocess.run(
        [spritz, "up", "-q", "--nodes", "1", *words], env=environment, capture_output=True, timeout=100
    )
    try:
        assert (done.returncode, done.stderr) == (0, b"")
        until(lambda: list(launched.runtime.glob("spritz/commands-*[0-9a-f]")), "a server listens")
        before = launched.direct_calls()
        assert launched.run("squeue", "--version", PYTHONPATH=str(packages)).returncode == 0
        assert launched.direct_calls() == before
    finally:
        subprocess.run([spritz, "down", "--timeout", "10", *words], env=environment, capture_output=True, timeout=100)
