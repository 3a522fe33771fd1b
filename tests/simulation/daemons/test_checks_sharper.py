"""Checks of drains, of planned starts that are put off, of calls of srun, and of what steps of one job have."""

from __future__ import annotations

from tests.simulation.daemons.day import Day

GPU = frozenset({("gpu", 0)})


def test_a_job_that_starts_on_a_drained_node_is_reported() -> None:
    day = Day(order_seconds=5.0)
    job = day.submit(1)
    day.request("drain", 0, 10, wanted={"nodes": ["n1"], "state": "DRAIN"})
    day.run(job, 20, 30)
    assert "on n1 at 20, whose drain was acknowledged" in day.broken()["3.drained"]


def test_a_job_may_start_on_a_node_that_was_resumed_or_is_another() -> None:
    day = Day(order_seconds=5.0)
    first, second = day.submit(1), day.submit(1)
    day.request("drain", 0, 10, wanted={"nodes": ["n1"], "state": "DRAIN"})
    day.run(first, 20, 30, "n2")
    day.request("undrain", 0, 40, wanted={"nodes": ["n1"], "state": "RESUME"})
    day.run(second, 50, 60)
    assert day.check() == []


def test_a_planned_start_that_is_put_off_is_reported() -> None:
    for later, reported in ((100, False), (90, False), (500, True)):
        day = Day(kill_wait_seconds=5.0, order_seconds=5.0)
        job = day.submit(1)
        day.read(10, (job, 100.0), kind="expected_starts")
        day.read(20, (job, float(later)), kind="expected_starts")
        day.run(job, 90, 95)
        assert ("7.promise" in day.broken()) is reported


def test_a_job_with_less_nice_outranks_an_earlier_one() -> None:
    for nice, reported in ((0, False), (100, True)):
        day = Day(kill_wait_seconds=5.0, order_seconds=5.0)
        job = day.submit(1, nice=50)
        day.read(10, (job, 100.0), kind="expected_starts")
        other = day.submit(15, nice=nice)
        day.run(other, 20, 30, "n2")
        day.run(job, 200, 210)
        assert ("7.promise" in day.broken()) is reported


def test_a_job_with_less_nice_than_another_was_given_outranks_it() -> None:
    for change, fields in (("", {}), ("update", {"nice": 7}), ("top", {})):
        day = Day(kill_wait_seconds=5.0, order_seconds=5.0)
        job = day.submit(1, nice=0)
        if change:
            day.request(change, job, 5, fields=fields)
        day.read(10, (job, 100.0), kind="expected_starts")
        other = day.submit(15, nice=0)
        day.run(other, 20, 30, "n2")
        day.run(job, 200, 210)
        assert ("7.promise" in day.broken()) is (not change)


def test_one_srun_that_makes_two_steps_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2)
    day.run(job, 3, 4, step_id=0, call="call=a")
    assert not day.broken().get("3.once", "").endswith("restart 0")
    day.run(job, 5, 6, step_id=1, call="call=a")
    assert any("the same srun has had step 0" in violation.text for violation in day.check())


def test_a_gpu_that_two_steps_asked_for_is_reported() -> None:
    day = Day()
    job = day.submit(1)
    day.begin(job, 2, gres=GPU)
    day.begin(job, 3, step_id=0, gres=GPU, step_gres=GPU, step_cpus=frozenset({0}))
    day.begin(job, 4, step_id=1, gres=GPU, step_gres=GPU, step_cpus=frozenset({1}))
    assert "with gpu 0 (steps 0 and 1)" in day.broken()["3.gres"]
