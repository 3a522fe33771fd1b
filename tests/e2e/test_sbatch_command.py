"""sbatch as scripts and people use it, on real daemons."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import environment, lines, run

pytestmark = pytest.mark.usefixtures("no_jobs_left")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with eight CPUs each, for all tests here."""
    made = Cluster(nodes=2)
    try:
        yield made.start()
    finally:
        made.close()


def output(cluster: Cluster, *argv: str, stdin: str | bytes = "", **env: str) -> str:
    """What a job wrote that was submitted with `--wait -o out`."""
    done = run(cluster, "sbatch", "--wait", "-o", "out", *argv, stdin=stdin, timeout=100, **env)
    assert done.returncode == 0, done.stderr
    return (cluster.work / "out").read_text()


def test_the_number_alone_is_on_standard_output(cluster: Cluster) -> None:
    done = run(cluster, "sbatch", "-o", "/dev/null", "--wrap", "true")
    assert done.stderr == b""
    words = done.stdout.decode().split()
    assert words[:3] == ["Submitted", "batch", "job"]
    assert words[3].isdigit()
    assert run(cluster, "sbatch", "--parsable", "-H", "--wrap", "true").stdout.strip().isdigit()


def test_a_script_comes_from_standard_input_with_its_arguments(cluster: Cluster) -> None:
    script = '#!/bin/sh\n#SBATCH -J given\necho "$SLURM_JOB_NAME" "$@"\n'
    assert output(cluster, stdin=script) == "given\n"
    assert output(cluster, "/dev/stdin", "-n", "a b", stdin=script) == "given -n a b\n"


def test_bytes_of_any_kind_arrive(cluster: Cluster) -> None:
    assert output(cluster, stdin=b"#!/bin/sh\nprintf '\xff' | od -An -tx1\n").split() == ["ff"]


def test_the_command_line_beats_the_environment_and_that_the_script(cluster: Cluster) -> None:
    script = "#!/bin/sh\n#SBATCH -J script -c3\n#PBS -l walltime=00:07:00\necho $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK\n"
    assert output(cluster, stdin=script) == "script 3\n"
    assert output(cluster, stdin=script, SBATCH_JOB_NAME="variable") == "variable 3\n"
    assert output(cluster, "-J", "line", stdin=script, SBATCH_JOB_NAME="variable") == "line 3\n"
    assert cluster.job(max(cluster.jobs())).spec.time_limit_minutes == 7


def test_wait_gives_the_jobs_status(cluster: Cluster) -> None:
    assert run(cluster, "sbatch", "-W", "-o", "/dev/null", "--wrap", "exit 7").returncode == 7
    assert run(cluster, "sbatch", "-W", "-o", "/dev/null", "--wrap", "kill -9 $$").returncode == 1
    queued = "while ! squeue -h -n gone | grep -q .; do sleep 0.1; done"
    cancelled = f"sbatch -W -H -J gone --wrap true & {queued}; scancel -n gone; wait $!"
    assert run(cluster, "sh", "-c", cancelled).returncode == 1
    array = run(cluster, "sbatch", "-W", "-a", "0-2", "-o", "/dev/null", "--wrap", "exit $SLURM_ARRAY_TASK_ID")
    assert array.returncode == 2


def test_a_job_without_its_submitters_environment_has_its_users(cluster: Cluster) -> None:
    text = output(cluster, "--export=NONE", "--wrap", "echo [$A] [${HOME:+home}] [$SLURM_EXPORT_ENV]", A="1")
    assert text == "[] [home] [NONE]\n"
    text = output(cluster, "--export=A,C=3", "--wrap", "echo [$A] [$B] [$C] [${PATH:+path}]", A="1", B="2")
    assert text == "[1] [] [3] [path]\n"


def test_variables_from_a_file(cluster: Cluster) -> None:
    (cluster.work / "variables").write_bytes(b"A=1\0B=two words\0")
    assert output(cluster, "--export-file=variables", "--wrap", "echo [$A] [$B] [$C]", C="3") == "[1] [two words] []\n"


def test_a_job_submitted_from_a_job_does_not_see_that_one(cluster: Cluster) -> None:
    inner = "#!/bin/sh\nenv | grep -c -E '^SLURM_(ARRAY|STEP|MEM_PER|NTASKS)'\n"
    (cluster.work / "inner").write_text(inner)
    command = "sbatch --parsable --wait -o inner-out inner; cat inner-out"
    done = run(cluster, "sbatch", "--wait", "-a", "1", "--mem=100", "-n1", "-o", "out", "--wrap", command)
    assert done.returncode == 0
    assert (cluster.work / "out").read_text().splitlines()[-1] == "0"


@pytest.mark.parametrize(
    ("argv", "stdin", "status", "complaint"),
    [
        (("nosuch.sh",), b"", 1, "sbatch: error: Unable to open file nosuch.sh"),
        ((), b"", 1, "sbatch: error: Batch script is empty!"),
        ((), b"\x7fELF" + bytes(100), 1, "sbatch: error: This does not look like a batch script.  The first"),
        ((), b"#!/bin/sh\r\n", 1, r"sbatch: error: Batch script contains DOS line breaks (\r\n)"),
        ((), b"#!/bin/sh\n" + b"#" * 10_000_000, 1, "sbatch: error: Batch job submission failed: Pathname of a file, "
         "directory or other parameter too long"),
        ((), b"#!/bin/sh\n#SBATCH -N abc\n", 255, 'sbatch: error: "abc" is not a valid node count'),
        ((), b"#!/bin/sh\n#SBATCH --nosuch\n", 255, "sbatch: unrecognized option '--nosuch'"),
        ((), b"#!/bin/sh\n#SBATCH -J a b\n", 255, "sbatch: error: Invalid directive found in batch script: b"),
        ((), b"#!/bin/sh\n#SBATCH -J 'a\n", 1, "sbatch: fatal: sbatch: line 2: Unmatched `'` in [ 'a]"),
        (("--wrap", "true", "x"), b"", 1, "sbatch: error: Script arguments not permitted with --wrap option"),
        (("--node", "--wrap", "true"), b"", 255,
         "sbatch: option '--node' is ambiguous; possibilities: '--nodefile' '--nodelist' '--nodes'"),
        (("-M", "nosuch", "--wrap", "true"), b"", 1, "sbatch: error: Problem talking to database"),
        (("-w", "nosuch", "--wrap", "true"), b"", 1,
         "sbatch: error: Batch job submission failed: Invalid node name specified"),
        (("-d", "afterok:x", "--wrap", "true"), b"", 1,
         "sbatch: error: Batch job submission failed: Job dependency problem"),
        (("-N3", "--wrap", "true"), b"", 1,
         "sbatch: error: Batch job submission failed: Requested node configuration is not available"),
        (("--mem=9T", "--wrap", "true"), b"", 1, "sbatch: error: Memory specification can not be satisfied"),
        (("--mem=1", "--mem-per-cpu=1", "--wrap", "true"), b"", 1,
         "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive."),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_slurms_words(
    cluster: Cluster, argv: tuple[str, ...], stdin: bytes, status: int, complaint: str
) -> None:
    before = set(cluster.jobs())
    done = run(cluster, "sbatch", *argv, stdin=stdin)
    assert done.stdout == b""
    assert complaint in lines(done.stderr)
    assert done.returncode == status
    assert set(cluster.jobs()) == before


def test_long_options_are_taken_or_refused(cluster: Cluster) -> None:
    long = "x" * 100_000
    assert run(cluster, "sbatch", "-H", f"--comment={long}", "--wrap", "true").returncode in (0, 1)
    for option in (
        "--time",
        "--mem",
        "--nodes",
        "--gres",
        "--dependency",
        "--begin",
        "--array",
        "--constraint",
        "--nosuch",
    ):
        done = run(cluster, "sbatch", "-H", f"{option}={long}", "--wrap", "true")
        assert done.returncode in (1, 255), option
        assert len(done.stderr) < 2000, option
        assert b"Traceback" not in done.stderr


def test_closed_streams_and_a_removed_directory_do_no_harm(cluster: Cluster) -> None:
    gone = cluster.work / "gone"
    gone.mkdir()
    shell = f"cd {gone}; rmdir {gone}; sbatch -o /dev/null --wrap true; sbatch -o /dev/null --wrap true <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, env=environment(cluster), timeout=100)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"Submitted batch job ")


def test_a_full_disk_behind_standard_output_is_an_error(cluster: Cluster) -> None:
    done = subprocess.run(
        ["sh", "-c", "sbatch -H --wrap true > /dev/full"], capture_output=True, env=environment(cluster), timeout=100
    )
    assert done.returncode == 1
    assert b"write error: No space left on device" in done.stderr


def test_wait_survives_a_controller_that_is_killed(cluster: Cluster) -> None:
    from tests.e2e.commands import start

    script = "while ! test -e outlived; do sleep 0.1; done; exit 5"
    waiting = start(cluster, "sbatch", "-W", "-J", "outlives", "-o", "/dev/null", "--wrap", script)
    until(lambda: any(job.spec.name == "outlives" for job in cluster.jobs().values()), "it is submitted")
    cluster.kill_controller()
    cluster.start_controller()
    (cluster.work / "outlived").touch()
    waiting.communicate(timeout=100)
    assert waiting.returncode == 5
