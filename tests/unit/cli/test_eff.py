"""spritz eff: what was used of what was asked for, and what to ask for next time."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from spritz.cli.call.context import Context
from spritz.cli.call.entry import call
from spritz.cli.local.questions import eff
from spritz.cli.local.questions.efficiency.advice import advise
from spritz.cli.local.questions.efficiency.measure import measure
from spritz.cli.local.questions.efficiency.text import text_lines
from spritz.cli.spritz import main
from spritz.model.accounting import step_usage
from spritz.model.accounting.records import JobRecord, JobWithSteps, StepRecord
from spritz.model.ids import STEP_BATCH
from spritz.model.node_daemon.reports import Metric, Usage

NOW = 1_700_010_000.0
START = 1_700_000_000.0
GIB = 1024


def a_job(seconds: float = 3600.0, **values: Any) -> JobRecord:
    given: dict[str, Any] = {
        "number": 1,
        "job_id": 12,
        "name": "train",
        "user": "ann",
        "partition": "main",
        "state": "COMPLETED",
        "eligible_at": START,
        "started_at": START,
        "ended_at": START + seconds,
        "nodes": "n1",
        "node_count": 1,
        "cpus": 8,
        "tres_allocated": "cpu=8,mem=32G,node=1,billing=8",
        "time_limit_minutes": 24 * 60,
    }
    return JobRecord(**(given | values))


def a_step(used: dict[str, Usage], begin: float = 0.0, end: float = 3600.0, **values: Any) -> StepRecord:
    """`used` by node."""
    given: dict[str, Any] = {
        "number": 1,
        "step_id": STEP_BATCH,
        "job_id": 12,
        "started_at": START + begin,
        "ended_at": START + end,
        "nodes": next(iter(used)),
        "node_count": len(used),
    }
    step = StepRecord(**(given | values))
    for node, usage in used.items():
        step_usage.add(step, node, usage)
    step_usage.average(step)
    return step


def usage(cpu: float = 0.0, memory_mib: float = 0.0, **values: Any) -> Usage:
    return Usage(cpu_user_seconds=cpu, rss_peak_mib=memory_mib, **values)


def lines(*jobs: JobWithSteps) -> list[str]:
    return [one.line for one in advise([measure(job, NOW) for job in jobs]) if one.line]


def words(*jobs: JobWithSteps) -> str:
    return "\n".join(text_lines([measure(job, NOW) for job in jobs]))


def test_what_was_too_much_is_said_with_the_lines_for_next_time() -> None:
    one = JobWithSteps(job=a_job(), steps=[a_step({"n1": usage(cpu=1.9 * 3600, memory_mib=5 * GIB)})])
    assert lines(one) == ["#SBATCH --ntasks=1 --cpus-per-task=3", "#SBATCH --mem=6G", "#SBATCH --time=01:20:00"]
    assert words(one).splitlines() == [
        "Job 12 (train) of ann: COMPLETED",
        "It ran for 01:00:00 on n1.",
        "",
        "        ASKED       USED",
        "Time    1-00:00:00  01:00:00             4%",
        "CPUs    8           1.9 busy on average  24%",
        "Memory  32G         5G at most           16%",
        "",
        "Next time, in place of what it asks for now:",
        "  #SBATCH --ntasks=1 --cpus-per-task=3   # 1.9 of 8 CPUs were busy on average",
        "  #SBATCH --mem=6G                       # 5G of 32G was used at most",
        "  #SBATCH --time=01:20:00                # it took 01:00:00 of 1-00:00:00",
    ]


def test_what_fitted_is_left_alone() -> None:
    job = a_job(time_limit_minutes=70)
    one = JobWithSteps(job=job, steps=[a_step({"n1": usage(cpu=7 * 3600, memory_mib=26 * GIB)})])
    assert lines(one) == []
    assert words(one).endswith("Nothing to change: what was asked for suits it, as far as it is known.")


def test_memory_that_was_not_enough_is_asked_for_again_and_more() -> None:
    step = a_step({"n1": usage(cpu=100, memory_mib=31 * GIB)}, oom=True)
    one = JobWithSteps(job=a_job(state="OUT_OF_MEMORY"), steps=[step])
    assert "#SBATCH --mem=48G" in lines(one)


def test_a_job_that_ran_out_of_memory_at_once_is_told_to_ask_for_more_than_it_reached() -> None:
    job = a_job(0.0, state="OUT_OF_MEMORY", tres_allocated="cpu=1,mem=50M,node=1", cpus=1)
    step = a_step({"n1": usage(memory_mib=74)}, 0, 0, oom=True)
    assert lines(JobWithSteps(job=job, steps=[step])) == ["#SBATCH --mem=100M"]


def test_a_time_limit_that_was_reached_is_doubled() -> None:
    job = a_job(state="TIMEOUT", time_limit_minutes=60)
    one = JobWithSteps(job=job, steps=[a_step({"n1": usage(cpu=7 * 3600, memory_mib=26 * GIB)})])
    assert lines(one) == ["#SBATCH --time=02:00:00"]


def test_memory_of_a_node_is_that_of_steps_at_the_same_time() -> None:
    """Two steps one after the other need the larger one's; together with a third, the sum."""
    steps = [
        a_step({"n1": usage(memory_mib=4 * GIB)}, 0, 100, step_id=0),
        a_step({"n1": usage(memory_mib=6 * GIB)}, 100, 200, step_id=1),
        a_step({"n1": usage(memory_mib=1 * GIB)}, 50, 300, step_id=2),
    ]
    assert measure(JobWithSteps(job=a_job(), steps=steps), NOW).memory_mib == 7 * GIB


def test_each_node_of_several_is_shown() -> None:
    used = {
        name: usage(
            cpu=cpu,
            memory_mib=memory,
            metrics=(
                Metric("cpu", int(cpu * 1000), int(cpu * 1000), 0, 0, 0),
                Metric("mem", memory << 20, memory << 20, 0, 0, 0),
                Metric("gres/gpumem", 3 << 30, 3 << 30, 0, 0, 0),
                Metric("gres/gpuutil", 90, 90, 0, 0, 0),
            ),
        )
        for name, cpu, memory in (("n1", 3600.0, 1024), ("n2", 7200.0, 2048))
    }
    job = a_job(nodes="n[1-2]", node_count=2, cpus=16, tres_allocated="cpu=16,mem=64G,node=2,gres/gpu=2")
    one = JobWithSteps(job=job, steps=[a_step(used, nodes="n[1-2]", tasks=2, step_id=0)])
    text = words(one)
    assert "n1    1.0        1G      90%  3G" in text
    assert "n2    2.0        2G      90%  3G" in text
    assert "Memory  32G a node  2G at most" in text
    assert "180% at most, 6G of memory" in text


def test_gpus_that_were_never_seen_in_use_are_mentioned() -> None:
    job = a_job(tres_allocated="cpu=8,mem=32G,node=1,gres/gpu=1", time_limit_minutes=70)
    unused = (Metric("gres/gpumem", 0, 0, 0, 0, 0), Metric("gres/gpuutil", 0, 0, 0, 0, 0))
    cpu = Metric("cpu", 7 * 3_600_000, 7 * 3_600_000, 0, 0, 0)
    memory = Metric("mem", 26 << 30, 26 << 30, 0, 0, 0)
    used = usage(cpu=7 * 3600, memory_mib=26 * GIB, metrics=(cpu, memory, *unused))
    one = JobWithSteps(job=job, steps=[a_step({"n1": used})])
    assert "not seen in use" in words(one)
    assert [each.why for each in advise([measure(one, NOW)])] == [
        "the GPU was seen unused: leave --gpus and --gres=gpu away, if that is so"
    ]


def test_gpus_that_could_not_be_sampled_are_not_called_unused() -> None:
    job = a_job(tres_allocated="cpu=8,mem=32G,node=1,gres/gpu=1", time_limit_minutes=70)
    one = JobWithSteps(job=job, steps=[a_step({"n1": usage(cpu=7 * 3600, memory_mib=26 * GIB)})])
    assert "not measured: NVML did not tell" in words(one)
    assert lines(one) == []


def test_it_is_said_that_nothing_was_sampled() -> None:
    one = JobWithSteps(job=a_job(), steps=[])
    assert "Nothing was sampled of what it used" in words(one)
    assert lines(one) == []


def test_what_has_not_run_has_used_nothing() -> None:
    job = a_job(state="PENDING", started_at=0.0, ended_at=0.0, nodes="", node_count=0, cpus=0, tres_allocated="")
    assert words(JobWithSteps(job=job)).endswith("It has not run: nothing was used.")


def test_tasks_of_an_array_are_told_together_by_the_one_that_needs_most() -> None:
    tasks = [
        JobWithSteps(
            job=a_job(job_id=20 + task, array_job_id=20, array_task_id=task, time_limit_minutes=70),
            steps=[a_step({"n1": usage(cpu=7 * 3600, memory_mib=memory)}, job_id=20 + task)],
        )
        for task, memory in enumerate((1000, 3000, 2000))
    ]
    assert lines(*tasks) == ["#SBATCH --mem=3600M"]
    text = words(*tasks)
    assert text.startswith("JOBID  STATE      ELAPSED   CPU  MEMORY  GPU  NODES\n20_0   COMPLETED  01:00:00  88%  3%")


def test_a_short_job_says_nothing_about_cpus() -> None:
    one = JobWithSteps(job=a_job(10.0, time_limit_minutes=1), steps=[a_step({"n1": usage(0.1, 30 * GIB)}, 0, 10)])
    assert not [line for line in lines(one) if "cpus" in line]


def test_for_programs_there_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    one = JobWithSteps(job=a_job(), steps=[a_step({"n1": usage(cpu=1.9 * 3600, memory_mib=5 * GIB)})])
    monkeypatch.setattr(eff, "jobs", lambda text, context: ([one], NOW))
    context = Context("spritz", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    assert call(main, ["eff", "--json", "12"], context) == 0
    (job,) = json.loads(context.stdout.getvalue())["jobs"]  # type: ignore[attr-defined]  # a StringIO
    assert job["memory_mib"] == 5 * GIB
    assert job["cpus_busy"] == pytest.approx(1.9)
    assert next(each["line"] for each in job["advice"]) == "#SBATCH --ntasks=1 --cpus-per-task=3"


def test_an_unknown_job_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eff, "jobs", lambda text, context: ([], NOW))
    context = Context("spritz", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    assert call(main, ["eff", "99"], context) == 1
    assert context.stderr.getvalue() == "spritz: error: accounting knows no job 99\n"  # type: ignore[attr-defined]


def test_cpus_asked_for_by_tasks_that_were_never_started_are_taken_back_too() -> None:
    script = a_step({"n1": usage(cpu=3600, memory_mib=25 * GIB)})
    one = JobWithSteps(job=a_job(time_limit_minutes=70), steps=[script])
    assert lines(one) == ["#SBATCH --ntasks=1 --cpus-per-task=2"]
    pair = [a_step({"n1": usage(cpu=1800, memory_mib=12 * GIB)}, step_id=number, tasks=2) for number in (0, 1)]
    one = JobWithSteps(job=a_job(time_limit_minutes=70), steps=pair)
    assert lines(one) == ["#SBATCH --ntasks=4 --cpus-per-task=1"], "two steps of two tasks at once"


def test_idle_tasks_are_told_without_a_line() -> None:
    step = a_step({"n1": usage(cpu=3600, memory_mib=25 * GIB)}, step_id=0, tasks=8)
    one = JobWithSteps(job=a_job(time_limit_minutes=70), steps=[step])
    assert lines(one) == []
    assert "1 of 8 CPUs were busy on average: fewer tasks would do" in words(one)


def test_nothing_is_said_of_cpus_that_were_not_asked_for() -> None:
    script = a_step({"n1": usage(cpu=3600, memory_mib=25 * GIB)})
    whole_node = a_job(time_limit_minutes=70, requested_cpus=1)
    assert lines(JobWithSteps(job=whole_node, steps=[script])) == []


def test_what_a_failed_job_did_not_use_is_no_measure() -> None:
    one = JobWithSteps(job=a_job(state="FAILED"), steps=[a_step({"n1": usage(cpu=8 * 3600, memory_mib=5)})])
    assert not any("--mem" in line for line in lines(one))


def test_components_of_a_heterogeneous_job_have_lines_of_their_own() -> None:
    told_lines = text_lines(
        [
            measure(
                JobWithSteps(
                    job=a_job(job_id=12 + n, number=n, het_job_id=12, het_offset=n, time_limit_minutes=70),
                    steps=[a_step({"n1": usage(cpu=7 * 3600, memory_mib=mib)}, number=n, job_id=12 + n)],
                ),
                NOW,
            )
            for n, mib in ((0, 26 * GIB), (1, 5 * GIB))
        ]
    )
    text = "\n".join(told_lines)
    assert "what was asked for suits 12+0" in text
    assert "Next time for 12+1, in place of what it asks for now:\n  #SBATCH --mem=6G" in text


def test_nothing_is_said_for_next_time_of_what_ended_at_once() -> None:
    ended = [JobWithSteps(job=a_job(0.0, number=n, job_id=n, state="FAILED"), steps=[]) for n in (1, 2)]
    assert "Nothing to change" not in "\n".join(text_lines([measure(one, NOW) for one in ended]))
