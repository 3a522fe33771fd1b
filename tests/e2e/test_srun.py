"""srun on real daemons: what it runs, prints, returns, and survives."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from spritz.model.states import JobState
from tests.e2e.cluster import Cluster, processes_with, until
from tests.e2e.commands import BIN, environment, lines, run, start, without_waiting

pytestmark = pytest.mark.usefixtures("no_jobs_left")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four nodes with eight CPUs each, for all tests here."""
    made = Cluster(nodes=4, extra="MpiParams=ports=12000-12005")
    try:
        yield made.start()
    finally:
        made.close()


def test_tasks_are_laid_out_over_nodes_and_labelled(cluster: Cluster) -> None:
    done = run(cluster, "srun", "-N4", "-l", "sh", "-c", "echo $SLURMD_NODENAME $SLURM_PROCID $SLURM_NODEID")
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(lines(done.stdout)) == ["0: n1 0 0", "1: n2 1 1", "2: n3 2 2", "3: n4 3 3"]


def test_the_worst_status_counts_and_failures_are_named(cluster: Cluster) -> None:
    done = run(cluster, "srun", "-n3", "sh", "-c", "exit $((SLURM_PROCID * 2))")
    assert done.returncode == 4
    assert sorted(lines(done.stderr)) == [
        "srun: error: n1: task 1: Exited with exit code 2",
        "srun: error: n1: task 2: Exited with exit code 4",
    ]


def test_a_killed_task_is_told_by_its_signal(cluster: Cluster) -> None:
    done = run(cluster, "srun", "sh", "-c", "kill -SEGV $$")
    assert (done.returncode, lines(done.stderr)) == (139, ["srun: error: n1: task 0: Segmentation fault"])


@pytest.mark.slow
def test_a_step_that_runs_out_of_memory_says_so_and_its_job_is_out_of_memory() -> None:
    eater = "keep = b'x' * (300 << 20)\nimport time; time.sleep(100)"
    cluster = Cluster(nodes=1, extra="SelectTypeParameters=CR_CPU_Memory\nJobAcctGatherParams=OverMemoryKill")
    try:
        cluster.start()
        done = run(cluster, "srun", "--mem=60", "-J", "eater", sys.executable, "-c", eater)
        assert done.returncode == 1
        assert b"error: Detected 1 oom_kill event in StepId=" in done.stderr
        assert b"srun: error: n1: task 0: Out Of Memory\n" in done.stderr
        listed = run(cluster, "squeue", "-h", "-t", "all", "-n", "eater", "-o", "%T %r")
        assert listed.stdout == b"OUT_OF_MEMORY OutOfMemory\n"
    finally:
        cluster.close()


def test_standard_input_reaches_all_one_or_none(cluster: Cluster) -> None:
    assert sorted(lines(run(cluster, "srun", "-n2", "-l", "cat", stdin="a\n").stdout)) == ["0: a", "1: a"]
    assert lines(run(cluster, "srun", "-n2", "-l", "-i1", "cat", stdin="a\n").stdout) == ["1: a"]
    assert run(cluster, "srun", "-i", "none", "cat", stdin="a\n").stdout == b""
    big = os.urandom(3_000_000)
    assert run(cluster, "srun", "-N2", "-n1", "cat", stdin=big).stdout == big


def test_output_goes_to_files_by_task_and_node_and_job(cluster: Cluster) -> None:
    done = run(
        cluster, "srun", "-N2", "-o", "o/%N-%2t.txt", "-e", "err-%j", "sh", "-c", "echo $SLURM_PROCID; echo e >&2"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (cluster.work / "o" / "n1-00.txt").read_text() == "0\n"
    assert (cluster.work / "o" / "n2-01.txt").read_text() == "1\n"
    (found,) = cluster.work.glob("err-[0-9]*")
    assert found.read_text() == "e\ne\n"


def test_steps_that_reserve_ports_wait_for_those_of_other_jobs(cluster: Cluster) -> None:
    begun = cluster.work / "ports-begun"
    os.mkfifo(cluster.work / "let-go")
    holder = start(cluster, "srun", "-wn1", "--resv-ports=5", "sh", "-c", f"touch {begun}; cat {cluster.work}/let-go")
    until(begun.exists, "the first step has its ports")
    waits = start(cluster, "srun", "-wn1", "--resv-ports=3", "printenv", "SLURM_STEP_RESV_PORTS")
    assert waits.stderr is not None
    assert b"step creation temporarily disabled, retrying" in waits.stderr.readline()
    (cluster.work / "let-go").write_text("")
    holder.communicate(timeout=100)
    assert holder.returncode == 0
    assert waits.communicate(timeout=100)[0] == b"12000-12002\n"
    refused = run(cluster, "srun", "--resv-ports=7", "true")
    assert refused.stderr.endswith(b"Requires more ports than can be reserved\n")
    mistyped = run(cluster, "srun", "--resv-ports=x", "true")
    assert (mistyped.returncode, mistyped.stderr) == (
        1,
        b'srun: error: Invalid numeric value "x" for --resv-port.\n',
    )


def test_several_programs_run_in_one_step(cluster: Cluster) -> None:
    (cluster.work / "prog").write_text("0 echo first\n* echo other %t\n")
    done = run(cluster, "srun", "-n3", "-l", "--multi-prog", "prog")
    assert sorted(lines(done.stdout)) == ["0: first", "1: other 1", "2: other 2"]


def test_bytes_that_are_no_utf8_reach_the_task_in_its_environment(cluster: Cluster) -> None:
    name = os.fsdecode(b"\xff\xfe")
    done = run(cluster, "srun", "sh", "-c", "printf %s $ODD | od -An -tx1", ODD=name)
    assert done.stdout.split() == [b"ff", b"fe"]


def test_words_and_files_that_are_no_utf8_are_taken_as_they_are(cluster: Cluster) -> None:
    odd = os.fsdecode(b"\xff")
    assert run(cluster, "srun", "echo", odd).stdout == b"\xff\n"
    assert run(cluster, "srun", "-J", odd, "-o", "out%t%x", "echo", odd).returncode == 0
    assert (cluster.work / f"out0{odd}").read_bytes() == b"\xff\n"


def test_closed_streams_do_no_harm(cluster: Cluster) -> None:
    shell = "srun echo hi <&-; srun true >&-; srun echo ho 2>&-; sbatch -o /dev/null --wrap true >&- 2>&- <&-"
    done = subprocess.run(
        ["sh", "-c", shell], capture_output=True, cwd=cluster.work, env=environment(cluster), timeout=100
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hi\nho\n", b"")


def test_a_removed_working_directory_is_said_and_tmp_taken(cluster: Cluster) -> None:
    gone = cluster.work / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", f"cd {gone}; rmdir {gone}; srun pwd"], capture_output=True, env=environment(cluster), timeout=100
    )
    assert done.stdout == b"/tmp\n"
    assert b"couldn't chdir to" in done.stderr


@pytest.mark.slow
def test_steps_of_a_job_wait_for_each_others_processors_unless_they_overlap(cluster: Cluster) -> None:
    script = """
        until_() { while ! "$@"; do sleep 0.1; done; }
        srun -n1 sh -c 'touch begun-1; while ! test -e end-1; do sleep 0.1; done' & until_ test -e begun-1
        srun -n1 echo second 2> said & until_ grep -qs busy said
        touch end-1; wait; cat said >&2
        srun sh -c 'touch begun-3; while ! test -e end-3; do sleep 0.1; done' & until_ test -e begun-3
        srun --overlap echo third
        touch end-3; wait
    """
    done = run(cluster, "salloc", "-Q", "-n1", "sh", "-c", script)
    assert lines(done.stdout) == ["second", "third"]
    said = lines(done.stderr)
    assert len(said) == 2
    assert "step creation temporarily disabled, retrying (Requested nodes are busy)" in said[0]
    assert said[1].startswith("srun: Step created for job ")


def test_a_step_behind_one_that_was_given_up_begins_at_once(cluster: Cluster) -> None:
    """Two of four CPUs are in use. The step that wants three is given up; the one behind it wants one, and got it only
    when another step ended.
    """
    script = """
        until_() { while ! "$@"; do sleep 0.1; done; }
        srun --exact -n2 sh -c 'touch begun-4; while ! test -e end-4; do sleep 0.1; done' & until_ test -e begun-4
        srun --exact -n3 echo large 2> said-large & large=$!; until_ grep -qs busy said-large
        srun --exact -n1 echo small 2> said-small & small=$!; until_ grep -qs busy said-small
        kill -TERM $large; wait $small
        srun --exact --immediate -n1 echo at once
        touch end-4; wait
    """
    done = run(cluster, "salloc", "-Q", "-N1", "-n4", "sh", "-c", script)
    assert (lines(done.stdout), done.stderr) == (["small", "at once"], b"")


def test_steps_side_by_side_with_exact(cluster: Cluster) -> None:
    script = "for i in 1 2 3 4; do srun --exact -N1 -n1 -c1 sh -c 'sleep 0.5; echo $SLURM_CPUS_ON_NODE' & done; wait"
    done = run(cluster, "salloc", "-Q", "-N1", "-n4", "sh", "-c", script)
    assert (lines(done.stdout), done.stderr) == (["1"] * 4, b"")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("-p", "nosuch"), "srun: error: Unable to allocate resources: Invalid partition name specified"),
        (("-n0",), 'srun: error: Invalid numeric value "0" for --ntasks.'),
        (("--jobid=99999999",), "srun: error: Unable to confirm allocation for job 99999999: Invalid job id specified"),
        (("--mpi=nosuch",), "srun: error: Invalid MPI type 'nosuch', --mpi=list for acceptable types"),
        (("-Z",), "srun: error: option --no-allocate is not supported by Spritz: every step belongs to a job"),
    ],
)
def test_refusals_are_slurms_and_exit_with_one(cluster: Cluster, argv: tuple[str, ...], message: str) -> None:
    done = run(cluster, "srun", *argv, "true")
    assert done.returncode == 1
    assert message in lines(done.stderr)
    assert run(cluster, "srun", *argv, "true", SLURM_EXIT_ERROR="77").returncode == 77


def test_a_job_that_must_wait_says_so_and_ctrl_c_takes_it_back(cluster: Cluster) -> None:
    blocker = cluster.submit("sleep 60", nodes_min=4, nodes_max=4, tasks=32, tasks_given=True)
    until(lambda: cluster.job(blocker).state is JobState.RUNNING, "the blocker runs")
    waiting = start(cluster, "srun", "-J", "waits", "-N4", "-n32", "true")
    assert waiting.stderr is not None
    queued = waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=100)
    assert waiting.returncode == 1
    (number,) = [job.id for job in cluster.jobs().values() if job.spec.name == "waits"]
    assert lines(queued + said) == [
        f"srun: job {number} queued and waiting for resources",
        f"srun: Job allocation {number} has been revoked",
    ]
    until(lambda: cluster.job(number).state is JobState.CANCELLED, "the job is cancelled")
    run(cluster, "scancel", str(blocker))


INTERRUPT = b"srun: interrupt (one more within 1 sec to abort)\n"


def press_ctrl_c_twice(running: subprocess.Popen[bytes]) -> None:
    """Until srun takes it for twice: on a busy machine more than a second may pass in between."""
    assert running.stderr is not None
    running.send_signal(signal.SIGINT)
    said: list[bytes] = []
    while b"srun: forcing job termination\n" not in said:
        said.append(running.stderr.readline())
        assert said[-1], said
        if said[-1] == INTERRUPT:
            running.send_signal(signal.SIGINT)
    assert INTERRUPT in said


def test_ctrl_c_twice_ends_the_step(cluster: Cluster) -> None:
    running = start(cluster, "srun", "-n2", "sh", "-c", "echo on; exec sleep 60")
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(2)] == [b"on\n"] * 2
    press_ctrl_c_twice(running)
    running.communicate(timeout=100)
    assert running.returncode == 130


def test_user_signals_are_passed_on(cluster: Cluster) -> None:
    running = start(cluster, "srun", "sh", "-c", "trap 'echo got; exit 4' USR1; echo on; while :; do sleep 0.1; done")
    assert running.stdout is not None
    assert running.stdout.readline() == b"on\n"
    running.send_signal(signal.SIGUSR1)
    out, _ = running.communicate(timeout=100)
    assert (running.returncode, out) == (4, b"got\n")


def test_a_killed_srun_leaves_no_process_behind(cluster: Cluster) -> None:
    running = start(cluster, "srun", "-N2", "sleep", "300", ENDING="srun-was-killed")
    until(lambda: len(processes_with("ENDING=srun-was-killed")) >= 3, "srun and its tasks run")
    running.kill()
    running.wait(100)
    until(lambda: not processes_with("ENDING=srun-was-killed"), "its tasks are gone")
    for stream in (running.stdout, running.stderr):
        assert stream is not None
        stream.close()


def test_a_step_outlives_a_controller_that_is_killed_and_started_again(cluster: Cluster) -> None:
    running = start(cluster, "srun", "-N2", "-J", "survives", "sh", "-c", "echo on; sleep 2; echo off; exit 3")
    assert running.stdout is not None
    assert running.stdout.readline() == b"on\n"
    cluster.kill_controller()
    cluster.start_controller()
    out, said = running.communicate(timeout=100)
    assert running.returncode == 3
    assert sorted(lines(out)) == ["off", "off", "on"]
    expected = [f"srun: error: n{n}: task {n - 1}: Exited with exit code 3" for n in (1, 2)]
    assert sorted(lines(without_waiting(said))) == expected
    (job,) = [job for job in cluster.jobs().values() if job.spec.name == "survives"]
    until(lambda: cluster.job(job.id).state.ended, "the job has ended")


def test_a_terminal_has_the_size_of_ours_and_ours_is_put_back(cluster: Cluster) -> None:
    import fcntl
    import struct
    import termios

    master, slave = pty.openpty()
    command = ["srun", "--pty", "sh", "-c", "stty size; read x; echo got $x; exit 6"]
    process = subprocess.Popen(
        ["setsid", "--ctty", BIN / command[0], *command[1:]],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=cluster.work,
        env=environment(cluster),
    )
    os.close(slave)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    before = termios.tcgetattr(master)
    output = b""
    typed = False
    try:
        while select.select([master], [], [], 100)[0]:
            try:
                output += os.read(master, 4096)
            except OSError:
                break
            if b"\n" in output and not typed:
                typed = True
                os.write(master, b"word\r")
        assert process.wait(100) == 6
        assert b"got word\r\n" in output
        assert b"srun: error: n1: task 0: Exited with exit code 6\r\n" in output
        assert termios.tcgetattr(master) == before
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_a_program_is_copied_to_the_nodes_first(cluster: Cluster) -> None:
    done = run(cluster, "srun", "-N2", f"--bcast={cluster.work}/copy", "echo", "copied")
    assert (lines(done.stdout), done.stderr) == (["copied", "copied"], b"")
    assert (cluster.work / "copy").stat().st_mode & 0o777 == 0o755


def test_a_reader_that_leaves_ends_the_step(cluster: Cluster) -> None:
    done = subprocess.run(
        ["sh", "-c", "srun yes | head -1"], capture_output=True, cwd=cluster.work, env=environment(cluster), timeout=100
    )
    assert done.stdout == b"y\n"


def test_one_more_client_sees_what_the_step_says(cluster: Cluster) -> None:
    script = "echo on; until [ -e seen ]; do echo tick; sleep 0.1; done; echo late"
    running = start(cluster, "srun", "-n2", "-J", "watched", "sh", "-c", script)
    assert running.stdout is not None
    assert running.stdout.readline() == b"on\n"
    (job,) = [job for job in cluster.jobs().values() if job.spec.name == "watched"]
    assert b"2 tasks, 1 nodes (n1)" in run(cluster, "sattach", "--layout", f"{job.id}.0").stdout
    watching = start(cluster, "sattach", "-l", f"{job.id}.0")
    assert watching.stdout is not None
    assert watching.stdout.readline() in (b"0: tick\n", b"1: tick\n")
    (cluster.work / "seen").touch()
    out, _ = watching.communicate(timeout=100)
    running.communicate(timeout=100)
    assert (watching.returncode, sorted(set(lines(out)) - {"0: tick", "1: tick"})) == (0, ["0: late", "1: late"])


@pytest.mark.parametrize(("option", "number"), [("-o", "INT"), ("-o", "TERM"), ("-e", "TERM"), ("-i", "INT")])
def test_signals_end_an_srun_whose_fifo_has_no_other_end(cluster: Cluster, option: str, number: str) -> None:
    fifo, on = cluster.work / "lonely", cluster.work / "lonely-on"
    on.unlink(missing_ok=True)
    if not fifo.exists():
        os.mkfifo(fifo)
    running = start(cluster, "srun", option, str(fifo), "sh", "-c", f"touch {on}; exec sleep 300")
    stderr = running.stderr
    assert stderr is not None
    until(on.exists, "the task runs")

    def answered() -> bool:
        running.send_signal(signal.SIGCONT)
        return bool(select.select([stderr], [], [], 0.1)[0])

    until(answered, "srun knows its step: it says 'got SIGCONT'")
    if number == "INT":
        press_ctrl_c_twice(running)
        running.communicate(timeout=100)
        assert running.returncode == 130
    else:
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=100)
        assert "srun: forcing job termination" in lines(said)
        assert running.returncode == 137


def test_a_fifo_gets_the_output_of_a_step_that_ended_before_its_reader_came(cluster: Cluster) -> None:
    fifo, on = cluster.work / "late", cluster.work / "late-on"
    os.mkfifo(fifo)
    running = start(cluster, "srun", "-J", "late", "-o", str(fifo), "sh", "-c", f"echo hello; touch {on}")
    until(on.exists, "the task runs")
    until(lambda: not run(cluster, "squeue", "-h", "-s", "-o", "%i").stdout, "the step has ended")
    assert fifo.read_text() == "hello\n"
    assert running.communicate(timeout=100) == (b"", b"")
    assert running.returncode == 0


def test_signals_end_an_srun_whose_reader_takes_no_more(cluster: Cluster) -> None:
    running = start(cluster, "srun", "seq", "1", "50000")
    assert running.stdout is not None
    other_end = os.open(f"/proc/self/fd/{running.stdout.fileno()}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        until(lambda: not select.select([], [other_end], [], 0)[1], "the pipe is full")
    finally:
        os.close(other_end)
    running.send_signal(signal.SIGTERM)
    running.wait(100)
    assert "srun: forcing job termination" in lines(running.communicate()[1])
