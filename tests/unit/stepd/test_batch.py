"""Batch steps: a script, its files, its end."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from spritz.model.node_daemon.reports import TaskEnd
from spritz.node.cgroup import prepare_memory, remove
from spritz.stepd import control
from spritz.stepd.resources.usage import job_group_name
from spritz.stepd.zygote import STEPS_MAX

from .conftest import PATIENCE_SECONDS, Running, Zygote, result_on_disk, wait_until


def test_a_script_runs_by_its_first_line_and_its_output_is_complete(zygote: Zygote, tmp_path: Path) -> None:
    output = tmp_path / "made" / "here" / "out.txt"
    script = "#!/bin/sh\necho one; echo two >&2; pwd; umask; test $SLURM_TASK_PID = $$ && echo mine\nexit 3\n"
    running = zygote.batch(script, output, umask=0o077)
    assert len(running.started().pids) == 1
    result = running.result()
    assert result.tasks == (TaskEnd(0, 3 << 8),)
    assert output.read_text() == f"one\ntwo\n{tmp_path}\n0077\nmine\n"
    assert result_on_disk(running) == result
    assert output.stat().st_mode & 0o777 == 0o600


def test_a_forgotten_supervisor_exits_and_one_without_daemon_leaves_its_result(zygote: Zygote, tmp_path: Path) -> None:
    running = zygote.batch("#!/bin/sh\ntrue\n", tmp_path / "out")
    running.result()
    running.order(control.Forget())
    assert isinstance(running.report(), control.Idle)
    pid = running.pid
    running.connection.close()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "an idle supervisor ends with its daemon")
    alone = zygote.batch("#!/bin/sh\nexit 7\n", tmp_path / "out")
    alone.connection.close()
    wait_until(lambda: result_on_disk(alone), "a result lies in the spool")
    found = result_on_disk(alone)
    assert found is not None
    assert found.tasks == (TaskEnd(0, 7 << 8),)


def test_an_idle_supervisor_does_another_step(zygote: Zygote, tmp_path: Path) -> None:
    first = zygote.batch("#!/bin/sh\numask 0; cd /; exit 1\n", tmp_path / "one")
    assert first.result().tasks[0].status == 1 << 8
    first.order(control.Forget())
    assert isinstance(first.report(), control.Idle)
    second = zygote.batch("#!/bin/sh\npwd; umask; exit 2\n", tmp_path / "two", through=first)
    assert second.result().tasks[0].status == 2 << 8
    assert second.pid == first.pid
    assert (tmp_path / "two").read_text() == f"{tmp_path}\n0022\n"


def test_the_last_step_of_a_supervisor_ends_without_a_promise(zygote: Zygote, tmp_path: Path) -> None:
    """A supervisor that says Idle must take the next step; one that ends after a number of steps must not say it."""
    running = zygote.batch("#!/bin/sh\n", tmp_path / "out")
    for step in range(1, STEPS_MAX):
        running.result()
        running.order(control.Forget())
        assert isinstance(running.report(), control.Idle), step
        running = zygote.batch("#!/bin/sh\n", tmp_path / "out", through=running)
    running.result()
    running.order(control.Forget())
    running.connection.settimeout(PATIENCE_SECONDS)
    assert running.connection.recv(65536) == b""


def test_truncate_and_append_are_kept_apart(zygote: Zygote, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("old\n")
    zygote.batch("#!/bin/sh\necho new\n", output, append=True).result()
    assert output.read_text() == "old\nnew\n"
    zygote.batch("#!/bin/sh\necho newer\n", output).result()
    assert output.read_text() == "newer\n"


def test_processes_left_behind_are_killed_even_in_sessions_of_their_own(zygote: Zygote, tmp_path: Path) -> None:
    pidfile = tmp_path / "pid"
    script = f"#!/bin/sh\nsetsid sh -c 'echo $$ > {pidfile}.new; mv {pidfile}.new {pidfile}; sleep 1000' &\n"
    script += f"while ! test -e {pidfile}; do sleep 0.01; done\n"
    running = zygote.batch(script, tmp_path / "out")
    assert running.result().tasks[0].status == 0
    assert not Path(f"/proc/{int(pidfile.read_text())}").exists()


def test_a_missing_work_dir_falls_back_to_tmp_with_slurms_words(zygote: Zygote, tmp_path: Path) -> None:
    output = tmp_path / "out"
    zygote.batch("#!/bin/sh\npwd\n", output, work_dir="/no/such").result()
    assert output.read_text() == (
        "slurmstepd: error: couldn't chdir to `/no/such': No such file or directory: going to /tmp instead\n/tmp\n"
    )


def test_output_that_cannot_be_opened_ends_the_job_with_status_53(zygote: Zygote) -> None:
    running = zygote.batch("#!/bin/sh\n", Path("/proc/nowhere/out"))
    result = running.result()
    assert result.tasks == (TaskEnd(0, 53),)
    assert result.error_kind == "io"
    assert result.error == "Could not open stdout file /proc/nowhere/out: No such file or directory"


def test_an_interpreter_that_does_not_exist_is_named_and_exits_with_its_errno(zygote: Zygote, tmp_path: Path) -> None:
    output = tmp_path / "out"
    result = zygote.batch("#!/no/interpreter\n", output).result()
    assert result.tasks == (TaskEnd(0, 2 << 8),)
    said = "slurmstepd: error: execve(): bad interpreter(/no/interpreter): No such file or directory\n"
    assert output.read_text() == said


def trapping(zygote: Zygote, tmp_path: Path) -> Running:
    """A script that says which signals it got, with a child that does not care."""
    script = (
        "#!/bin/bash\ntrap 'echo USR1' USR1; trap 'echo TERM' TERM\n"
        'bash -c \'trap "" TERM; trap "echo child USR1" USR1; touch ready; while :; do sleep 0.05; done\' &\n'
        "while :; do wait; done\n"
    )
    running = zygote.batch(script, tmp_path / "out")
    running.started()
    wait_until((tmp_path / "ready").exists, "the script has begun")
    return running


def test_a_signal_reaches_all_processes_or_the_shell_alone(zygote: Zygote, tmp_path: Path) -> None:
    running = trapping(zygote, tmp_path)
    output = tmp_path / "out"
    running.order(control.Signal(signal.SIGUSR1, first_only=True))
    wait_until(lambda: output.read_text() == "USR1\n", "the shell had USR1")
    running.order(control.Signal(signal.SIGUSR1))
    wait_until(lambda: output.read_text().count("USR1") == 3, "shell and child had USR1")
    running.order(control.Terminate("", 0))
    assert running.result().tasks[0].status == signal.SIGKILL


def test_terminate_says_why_asks_nicely_and_then_kills_all(zygote: Zygote, tmp_path: Path) -> None:
    running = trapping(zygote, tmp_path)
    output = tmp_path / "out"
    running.order(control.Terminate("error: *** JOB 5 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", 1000.0))
    wait_until(lambda: "TERM" in output.read_text().splitlines(), "the shell was asked to end")
    assert output.read_text().splitlines()[0] == (
        "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***"
    )
    running.order(control.Terminate("", 0.1))
    assert running.result().tasks[0].status == signal.SIGKILL


def test_an_order_to_end_that_comes_again_neither_puts_off_the_end_nor_is_told_again(
    zygote: Zygote, tmp_path: Path
) -> None:
    """A node whose connection comes and goes gets the order each time. A repeated order must not restart KillWait."""
    running = trapping(zygote, tmp_path)
    output = tmp_path / "out"
    running.order(control.Terminate("error: *** CANCELLED ***", 1000.0))
    wait_until(lambda: "TERM" in output.read_text(), "the shell was asked to end")
    running.order(control.Terminate("error: *** CANCELLED ***", 1.0))
    for _ in range(3):
        running.order(control.Terminate("error: *** CANCELLED ***", 1000.0))
    assert running.result().tasks[0].status == signal.SIGKILL
    assert output.read_text().count("CANCELLED") == 1


def test_an_order_to_end_at_once_cuts_the_grace_short(zygote: Zygote, tmp_path: Path) -> None:
    running = trapping(zygote, tmp_path)
    running.order(control.Terminate("", 1000.0))
    wait_until(lambda: "TERM" in (tmp_path / "out").read_text(), "the shell was asked to end")
    running.order(control.Terminate("", 0.0))
    assert running.result().tasks[0].status == signal.SIGKILL


def test_suspended_processes_stand_still_until_resumed(zygote: Zygote, tmp_path: Path) -> None:
    running = zygote.batch("#!/bin/sh\nwhile test ! -e go; do :; done; echo went\n", tmp_path / "out")
    pid = running.started().pids[0]

    def state() -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    running.order(control.Suspend())
    wait_until(lambda: state() == "T", "the shell is stopped")
    (tmp_path / "go").touch()
    running.order(control.Suspend(resume=True))
    assert running.result().tasks[0].status == 0
    assert (tmp_path / "out").read_text() == "went\n"


def test_only_those_that_mind_the_signal_have_time_before_they_are_stopped(zygote: Zygote, tmp_path: Path) -> None:
    running = zygote.batch("#!/bin/sh\ntrap ': > told' TSTP\n: > ready\nwhile :; do :; done\n", tmp_path / "a")
    other = zygote.batch("#!/bin/sh\nwhile :; do :; done\n", tmp_path / "b")
    minding, unminding = running.started().pids[0], other.started().pids[0]

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    wait_until((tmp_path / "ready").exists, "the trap is set")
    for one in (running, other):
        one.order(control.Suspend(grace_seconds=1000.0))
    wait_until(lambda: state(unminding) == "T", "the one that does nothing about it is stopped")
    wait_until((tmp_path / "told").exists, "the other is told, and goes on")
    assert state(minding) != "T"
    for one in (running, other):
        one.order(control.Terminate("", 0))
        one.result()


def test_a_step_over_its_memory_is_killed_and_says_so(zygote: Zygote, tmp_path: Path) -> None:
    script = "#!/usr/bin/env python3\nkeep = b'x' * (200 << 20)\nimport time; time.sleep(60)\n"
    running = zygote.batch(script, tmp_path / "out", memory_limit_mib=50)
    result = running.result()
    assert result.oom
    assert result.tasks[0].status == signal.SIGKILL
    assert result.usage.rss_peak_mib > 50
    assert re.sub(r"\d{8,}", "BYTES", (tmp_path / "out").read_text()) == (
        "slurmstepd: error: StepId=5.batch exceeded memory limit (BYTES > BYTES), being killed\n"
        "slurmstepd: error: Exceeded job memory limit\n"
        "slurmstepd: error: Detected 1 oom_kill event in StepId=5.batch. Some of the step tasks have been OOM Killed.\n"
    )


def test_usage_counts_what_the_whole_step_used(zygote: Zygote, tmp_path: Path) -> None:
    script = "#!/usr/bin/env python3\nimport time\nwhile time.process_time() < 0.2: pass\n"
    usage = zygote.batch(script, tmp_path / "out").result().usage
    assert 0.15 < usage.cpu_user_seconds + usage.cpu_system_seconds < 5
    assert usage.rss_peak_mib > 1


def test_a_task_prolog_changes_the_environment_and_an_epilog_runs_at_the_end(zygote: Zygote, tmp_path: Path) -> None:
    prolog, epilog = tmp_path / "prolog", tmp_path / "epilog"
    prolog.write_text("#!/bin/sh\necho export ADDED=a b\necho unset GONE\necho print hello\necho nonsense\n")
    epilog.write_text(f"#!/bin/sh\necho $SLURM_PROCID > {tmp_path}/epilog.out\n")
    prolog.chmod(0o755)
    epilog.chmod(0o755)
    zygote.batch(
        '#!/bin/sh\necho "$ADDED,${GONE-unset}"\n',
        tmp_path / "out",
        environment=(b"PATH=/usr/bin:/bin", b"GONE=here"),
        task_prologs=(str(prolog),),
        task_epilogs=(str(epilog),),
    ).result()
    assert (tmp_path / "out").read_text() == "hello\na b,unset\n"
    assert (tmp_path / "epilog.out").read_text() == "0\n"


def test_a_task_prolog_that_fails_ends_the_task_before_it_began(zygote: Zygote, tmp_path: Path) -> None:
    prolog = tmp_path / "prolog"
    prolog.write_text("#!/bin/sh\nexit 7\n")
    prolog.chmod(0o755)
    result = zygote.batch("#!/bin/sh\necho ran\n", tmp_path / "out", task_prologs=(str(prolog),)).result()
    assert result.tasks[0].status == 7 << 8
    assert (tmp_path / "out").read_text() == "slurmstepd: error: TaskProlog failed status=7\n"


def test_a_task_epilog_that_fails_or_is_not_there_is_told(zygote: Zygote, tmp_path: Path) -> None:
    epilog = tmp_path / "epilog"
    epilog.write_text("#!/bin/sh\nexit 3\n")
    epilog.chmod(0o755)
    result = zygote.batch("#!/bin/sh\n", tmp_path / "out", task_epilogs=("/no/such", str(epilog))).result()
    assert result.tasks[0].status == 0
    assert (tmp_path / "out").read_text().splitlines() == [
        "slurmstepd: error: Could not run user task_epilog [/no/such]: access denied",
        "slurmstepd: error: TaskEpilog failed status=-1",
        "slurmstepd: error: TaskEpilog failed status=768",
    ]


@pytest.mark.slow
def test_a_task_epilog_has_five_seconds(zygote: Zygote, tmp_path: Path) -> None:
    """The limit is the one thing that ends this step."""
    epilog = tmp_path / "epilog"
    epilog.write_text("#!/bin/sh\nexec sleep 1000\n")
    epilog.chmod(0o755)
    result = zygote.batch("#!/bin/sh\n", tmp_path / "out", task_epilogs=(str(epilog),)).result()
    assert result.tasks[0].status == 0
    assert (tmp_path / "out").read_text() == "slurmstepd: error: TaskEpilog failed status=9\n"


def test_an_environment_need_not_be_text(zygote: Zygote, tmp_path: Path) -> None:
    environment = (b"PATH=/usr/bin:/bin", b"ODD=\xff\xfe=x", b"EMPTY=")
    zygote.batch('#!/bin/sh\nprintf %s "$ODD" | od -An -tx1\n', tmp_path / "out", environment=environment).result()
    assert (tmp_path / "out").read_text() == " ff fe 3d 78\n"


@pytest.mark.parametrize("signal_number", [signal.SIGPIPE, signal.SIGINT])
def test_tasks_start_with_default_signal_dispositions(
    zygote: Zygote, tmp_path: Path, signal_number: signal.Signals
) -> None:
    result = zygote.batch(f"#!/bin/sh\nkill -{signal_number} $$\n", tmp_path / "out").result()
    assert result.tasks[0].status == signal_number


def test_limits_are_the_submitters(zygote: Zygote, tmp_path: Path) -> None:
    limits = (("NOFILE", 123), ("CORE", 0), ("NOSUCH", 1))
    zygote.batch("#!/bin/sh\nulimit -n; ulimit -c\n", tmp_path / "out", limits=limits).result()
    assert (tmp_path / "out").read_text() == "123\n0\n"


def test_a_task_has_no_descriptors_but_its_own(zygote: Zygote, tmp_path: Path) -> None:
    zygote.batch(
        "#!/bin/bash\nls -l /proc/$$/fd 2>/dev/null | grep -c socket; ls /proc/self/fd | wc -l\n", tmp_path / "out"
    ).result()
    # The first ls may see the shell's pipe go. The second opens the directory itself; bash has duplicates of no stream
    # of its own in /proc/self/fd of its child.
    assert (tmp_path / "out").read_text() == "0\n4\n"


def test_the_kernel_holds_the_memory_limit_where_it_may(zygote: Zygote, tmp_path: Path) -> None:
    parent = prepare_memory(f"spritz_test_{os.getpid()}")
    if not parent:
        pytest.skip("no memory cgroup may be made here")
    script = "#!/usr/bin/env python3\nkeep = b'x' * (200 << 20)\n"
    try:
        running = zygote.batch(script, tmp_path / "out", memory_limit_mib=50, cgroup_memory=parent, sample_seconds=60)
        result = running.result()
        assert (result.oom, result.tasks[0].status) == (True, signal.SIGKILL)
        assert "Detected 1 oom_kill event in StepId=5.batch" in (tmp_path / "out").read_text()
        running.order(control.Forget())
        assert isinstance(running.report(), control.Idle)
        again = zygote.batch(
            script, tmp_path / "out", memory_limit_mib=400, cgroup_memory=parent, sample_seconds=60, through=running
        )
        second = again.result()
        assert (second.oom, second.tasks[0].status) == (False, 0)
        again.order(control.Forget())
        assert isinstance(again.report(), control.Idle)
        large = script.replace("200", "500")
        free = zygote.batch(large, tmp_path / "out", cgroup_memory=parent, sample_seconds=60, through=again)
        assert free.result().tasks[0].status == 0, "a step without a limit was held to that of an earlier one"
    finally:
        zygote.close()
        remove(parent)
    assert not Path(parent).exists()


@pytest.mark.parametrize("by_kernel", [True, False])
def test_steps_of_a_job_share_its_memory_limit(zygote: Zygote, tmp_path: Path, by_kernel: bool) -> None:
    parent = prepare_memory(f"spritz_test_{os.getpid()}") if by_kernel else ""
    if by_kernel and not parent:
        pytest.skip("no memory cgroup may be made here")
    own = f"{parent}/{job_group_name('n1', 5, 0)}" if parent else ""
    script = (
        "#!/usr/bin/env python3\nimport os, time\nkeep = b'x' * (80 << 20)\n"
        "open('{0}', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    )
    limits = {"memory_limit_mib": 100, "job_memory_limit_mib": 100, "cgroup_memory": own, "sample_seconds": 60}
    try:
        steps = []
        for name in ("a", "b"):
            steps.append(zygote.batch(script.format(name), tmp_path / f"out{name}", **limits))
            steps[-1].started()
            if name == "a":
                wait_until((tmp_path / "a").exists, "the first has its memory")
        # Each is below its own limit. Of the two the kernel, or the larger step itself, chooses.
        wait_until(lambda: any("oom_kill" in (tmp_path / f"out{name}").read_text() for name in "ab"), "one is killed")
        (tmp_path / "go").touch()
        ends = [step.result().oom for step in steps]
        assert sorted(ends) == [False, True]

        # The next job of the same supervisor is held to its own limit.
        survivor = steps[ends.index(False)]
        survivor.order(control.Forget())
        assert isinstance(survivor.report(), control.Idle)
        (tmp_path / "go").unlink()
        other = limits | {"job_id": 6, "job_memory_limit_mib": 50}
        if parent:
            other["cgroup_memory"] = f"{parent}/{job_group_name('n1', 6, 0)}"
        after = zygote.batch(script.format("c"), tmp_path / "outc", through=survivor, **other)
        assert after.result().oom
    finally:
        zygote.close()
        remove(parent)
    assert not parent or not Path(parent).exists()


def told(path: Path) -> Path:
    """A program that notes what it was told."""
    program = path / "unkillable.sh"
    program.write_text(
        f"#!/bin/sh\necho $SLURM_JOB_ID $SLURM_STEP_ID $SLURMD_NODENAME > {path}/n; mv {path}/n {path}/told\n"
    )
    program.chmod(0o755)
    return program


def test_a_step_whose_processes_do_not_die_is_given_up_and_the_sites_program_is_told(
    zygote: Zygote, tmp_path: Path
) -> None:
    """slurm.conf(5) UnkillableStepProgram. A time that is over before it begins stands for processes in state D."""
    pidfile = tmp_path / "pid"
    script = f"#!/bin/sh\nsetsid sh -c 'echo $$ > {pidfile}.new; mv {pidfile}.new {pidfile}; exec sleep 1000' &\n"
    script += f"while ! test -e {pidfile}; do sleep 0.01; done\n"
    running = zygote.batch(script, tmp_path / "out", unkillable_seconds=-1, unkillable_program=str(told(tmp_path)))
    result = running.result()
    os.kill(int(pidfile.read_text()), signal.SIGKILL)
    assert (result.error_kind, result.tasks) == ("unkillable", (TaskEnd(0, 0),))
    wait_until((tmp_path / "told").exists, "UnkillableStepProgram ran")
    assert (tmp_path / "told").read_text() == "5 batch n1\n"


def test_a_task_that_does_not_die_of_sigkill_ends_its_step_all_the_same(zygote: Zygote, tmp_path: Path) -> None:
    running = zygote.batch("#!/bin/sh\nexec sleep 1000\n", tmp_path / "out", unkillable_seconds=-1)
    running.started()
    running.order(control.Terminate("", 0.0))
    assert running.result().tasks == (TaskEnd(0, signal.SIGKILL),)
