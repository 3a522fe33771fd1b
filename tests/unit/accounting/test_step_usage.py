"""What steps used, as sacct shows it: added up over nodes and tasks. Source: sacct(1) TRESUsageIn*."""

from __future__ import annotations

from spritz.model.accounting import step_usage as usage
from spritz.model.accounting.records import StepRecord
from spritz.model.node_daemon.reports import Metric, Usage


def step(tasks: int = 1) -> StepRecord:
    return StepRecord(number=1, step_id=0, job_id=1, tasks=tasks)


def test_one_task_is_largest_smallest_average_and_total() -> None:
    one = step()
    usage.add(one, "n1", Usage(cpu_user_seconds=1.5, cpu_system_seconds=0.5, rss_peak_mib=2.0, written_mib=1.0))
    usage.average(one)
    wanted = f"cpu=2000,fs/disk=0,mem={2 << 20},pages=0,vmem=0"
    assert {one.usage_in_max, one.usage_in_min, one.usage_in_ave, one.usage_in_tot} == {wanted}
    assert one.usage_in_max_node == "cpu=n1,fs/disk=n1,mem=n1,pages=n1,vmem=n1"
    assert one.usage_out_tot == f"fs/disk={1 << 20}"
    assert (one.user_cpu_seconds, one.system_cpu_seconds) == (1.5, 0.5)


def test_of_several_nodes_the_largest_and_the_smallest_are_named() -> None:
    two = step(tasks=2)
    usage.add(two, "n1", Usage(cpu_user_seconds=1.0, rss_peak_mib=4.0))
    usage.add(two, "n2", Usage(cpu_user_seconds=3.0, rss_peak_mib=1.0))
    usage.average(two)
    assert usage.parse(two.usage_in_tot)["cpu"] == "4000"
    assert usage.parse(two.usage_in_ave)["cpu"] == "2000"
    assert usage.parse(two.usage_in_max_node) == {
        "cpu": "n2",
        "fs/disk": "n1",
        "mem": "n1",
        "pages": "n1",
        "vmem": "n1",
    }
    assert usage.parse(two.usage_in_min_node)["mem"] == "n2"


def test_tasks_are_named_by_their_rank() -> None:
    many = step(tasks=4)
    first = (Metric("cpu", 500, 300, 1, 200, 0), Metric("mem", 3000, 2000, 0, 1000, 1))
    second = (
        Metric("cpu", 900, 800, 3, 100, 2),
        Metric("mem", 5000, 3000, 2, 2000, 3),
        Metric("out/fs/disk", 8, 8, 2, 0, 3),
    )
    usage.add(many, "n1", Usage(metrics=first))
    usage.add(many, "n2", Usage(metrics=second))
    usage.average(many)
    rest = dict.fromkeys(("fs/disk", "pages", "vmem"), "0")
    assert usage.parse(many.usage_in_tot) == {"cpu": "1400", "mem": "8000", **rest}
    assert usage.parse(many.usage_in_ave) == {"cpu": "350", "mem": "2000", **rest}
    assert usage.parse(many.usage_in_max) == {"cpu": "800", "mem": "3000", **rest}
    assert usage.parse(many.usage_in_max_task) == {"cpu": "3", "mem": "2", **rest}
    assert usage.parse(many.usage_in_min) == {"cpu": "100", "mem": "1000", **rest}
    assert usage.parse(many.usage_in_min_task) == {"cpu": "2", "mem": "1", **rest}
    assert usage.parse(many.usage_in_min_node) == {"cpu": "n2", "mem": "n1", **dict.fromkeys(rest, "n1")}
    assert (many.usage_out_max, many.usage_out_min, many.usage_out_max_task) == ("fs/disk=8", "fs/disk=0", "fs/disk=2")


def test_what_no_task_has_used_is_none_of_a_task_of_that_node() -> None:
    many = step(tasks=4)
    memory = Metric("vmem", 9, 5, 0, 4, 1)
    usage.add(many, "n1", Usage(metrics=(Metric("cpu", 5, 3, 1, 2, 0), Metric("pages", 2, 1, 0, 1, 0), memory)))
    usage.add(many, "n2", Usage(metrics=(Metric("cpu", 9, 8, 3, 1, 2), memory)))
    assert (usage.parse(many.usage_in_min_node)["pages"], usage.parse(many.usage_in_min_task)["pages"]) == ("n2", "2")


def test_a_step_that_ended_before_anybody_looked_has_no_measures() -> None:
    one = step()
    usage.add(one, "n1", Usage(cpu_user_seconds=0.002, metrics=(Metric("cpu", 2, 2, 0, 2, 0),)))
    usage.average(one)
    assert (one.usage_in_tot, one.usage_in_max_node, one.user_cpu_seconds) == ("", "", 0.002)


def test_a_node_that_says_nothing_changes_nothing() -> None:
    one = step()
    usage.add(one, "n1", Usage())
    usage.average(one)
    assert one == step()
