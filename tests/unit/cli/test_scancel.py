"""scancel: what it ends, what it says, with which status."""

from __future__ import annotations

import pytest
from msgspec import Struct

from spritz.cli.scancel import main
from spritz.core.machine import Outcome
from spritz.model.cluster.settings import Caller
from spritz_testing.builders import ALICE, BOB, ROOT
from tests.unit.cli.site import Site


def states(site: Site) -> dict[str, str]:
    return {job.spec.name: job.state.value for job in site.world.state.jobs.values()}


def test_an_id_that_never_was_is_no_error_and_no_word(site: Site) -> None:
    ran = site.run(main, "99")
    assert (ran.status, ran.out, ran.err) == (0, "", "")
    ran = site.run(main, "-v", "99")
    assert ran.status == 0
    assert ran.err.splitlines() == [
        "scancel: Terminating job 99",
        "scancel: error: Kill job error on job id 99: Invalid job id specified",
    ]


def test_pending_running_and_ended_jobs(site: Site) -> None:
    pending, running = site.submit(name="pending", hold=True), site.running(name="running")
    assert site.run(main, str(pending), str(running)).err == ""
    assert states(site) == {"pending": "CANCELLED", "running": "CANCELLED"}
    assert site.run(main, str(pending)).err == ""
    assert site.run(main, "-v", str(pending)).err.splitlines() == [
        f"scancel: Terminating job {pending}",
        f"scancel: error: Kill job error on job id {pending}: Job/step already completing or completed",
    ]


def test_anothers_job_is_refused_with_slurms_number(site: Site) -> None:
    job = site.submit(ALICE)
    site.caller = BOB
    for words in ((str(job),), ("-Q", str(job)), ("-u", "1001")):
        ran = site.run(main, *words)
        assert (ran.status, ran.err) == (
            210,
            f"scancel: error: Kill job error on job id {job}: Access/permission denied\n",
        ), words


@pytest.mark.parametrize("word", ["abc", "1x", "12_x", "0", "12.x", "", "12_[", "1,abc", "9" * 40, "1.1.1"])
def test_what_is_no_id_is_refused_and_nothing_done(site: Site, word: str) -> None:
    site.submit(name="kept")
    ran = site.run(main, "1", word)
    assert (ran.status, ran.err) == (1, f"scancel: error: Invalid job id {word}\n")
    assert states(site) == {"kept": "PENDING"}


def test_tasks_of_an_array(site: Site) -> None:
    array = site.submit(array="0-5", hold=True)
    assert site.run(main, f"{array}_2", f"{array}_[4-5]").err == ""
    assert site.world.job(array).array is not None
    assert site.world.job(array).array.pending == format(0b001011, "x")  # type: ignore[union-attr]
    assert site.run(main, f"{array}_99").err == ""
    assert "Invalid job id specified" in site.run(main, "-v", f"{array}_99").err
    assert site.run(main, f"{array}_").err == ""
    assert not site.world.state.pending


def test_no_words_are_no_order(site: Site) -> None:
    site.submit()
    assert site.run(main).err == "scancel: error: No job identification provided\n"
    assert site.run(main, "-v").status == 1
    assert site.world.state.pending


def test_filters_choose_and_must_all_match(site: Site) -> None:
    site.submit(name="a", hold=True)
    kept = site.submit(BOB, name="b", hold=True)
    site.running(name="r")
    assert site.run(main, "-n", "b", "-u", "1001").err == ""
    assert site.run(main, "-n", "a", str(kept)).err == ""
    assert set(states(site).values()) == {"PENDING", "RUNNING"}
    assert site.run(main, "-t", "RUNNING").status == 0
    assert states(site) == {"a": "PENDING", "b": "PENDING", "r": "CANCELLED"}
    assert site.run(main, "-u", "1002").status == 0
    assert states(site)["b"] == "CANCELLED"
    ran = site.run(main, "-t", "PENDING", str(kept))
    assert (ran.status, ran.err) == (
        1,
        f"scancel: error: Kill job error on job id {kept}: Invalid job id specified\n",
    )


def test_variables_are_filters_too(site: Site) -> None:
    site.submit(name="a", hold=True)
    site.submit(name="b", hold=True)
    assert site.run(main, SCANCEL_NAME="a").status == 0
    assert states(site) == {"a": "CANCELLED", "b": "PENDING"}


def test_interactive_asks_for_each(site: Site) -> None:
    job = site.submit(name="asked", hold=True)
    ran = site.run(main, "-i", str(job), stdin="n\n")
    assert ran.out == f"Cancel job_id={job} name=asked partition=debug [y/n]? "
    assert states(site) == {"asked": "PENDING"}
    site.run(main, "-i", str(job), stdin="y\n")
    assert states(site) == {"asked": "CANCELLED"}


def test_interactive_stops_at_the_end_of_input(site: Site) -> None:
    job = site.submit(name="asked", hold=True)
    site.run(main, "-i", str(job))
    assert states(site) == {"asked": "PENDING"}


def test_a_step_that_is_not_there_is_an_error(site: Site) -> None:
    job = site.running()
    ran = site.run(main, f"{job}.7")
    assert (ran.status, ran.err) == (
        2017 & 0xFF,
        f"scancel: error: Kill job error on job step id {job}: Invalid job id specified\n",
    )


def test_a_step_is_named_in_full_where_its_job_is_not_there(site: Site) -> None:
    ran = site.run(main, "99.0")
    assert (ran.status, ran.err) == (
        1,
        "scancel: error: Kill job error on job step id 99.0: Invalid job id specified\n",
    )


def test_a_step_of_a_job_that_waits_is_no_error(site: Site) -> None:
    job = site.submit(hold=True, name="waits")
    ran = site.run(main, f"{job}.0")
    assert (ran.status, ran.err) == (0, "")
    assert states(site) == {"waits": "PENDING"}


def test_a_signal_to_a_job_that_is_not_there_is_an_error_and_goes_to_no_other(site: Site) -> None:
    job = site.running(name="runs")
    for words in (("-s", "KILL", "99"), ("-b", "99")):
        ran = site.run(main, *words)
        assert (ran.status, ran.err) == (1, "scancel: error: Kill job error on job id 99: Invalid job id specified\n")
    assert states(site) == {"runs": "RUNNING"}
    assert site.run(main, "-s", "KILL", "99", str(job)).status == 1
    assert states(site) == {"runs": "CANCELLED"}


def test_a_signal_is_sent_and_the_job_goes_on(site: Site) -> None:
    job = site.running(name="runs")
    site.world.started(job)
    ran = site.run(main, "-v", "-s", "USR1", str(job))
    assert (ran.status, ran.err) == (0, f"scancel: Signal 10 to job {job}\n")
    assert states(site) == {"runs": "RUNNING"}


def test_bad_values_are_told_in_slurms_words(site: Site) -> None:
    assert site.run(main, "-s", "NOSUCH", "1").err == "Unknown job signal: NOSUCH\n"
    assert site.run(main, "-t", "nosuch").err == (
        "Invalid job state specified: nosuch\nValid job states are PENDING, RUNNING, and SUSPENDED\n"
    )
    assert site.run(main, "-u", "no-such-user").err == "scancel: error: Invalid user name: no-such-user\n"
    assert site.run(main, "--nosuch", "1").err == (
        "scancel: unrecognized option '--nosuch'\nTry \"scancel --help\" for more information\n"
    )


def test_a_step_is_killed_at_once_and_a_job_is_asked_first(site: Site) -> None:
    from spritz.core.effects import Effect, TerminateJobOn, TerminateStepOn
    from spritz_testing.builders import only

    job, other = site.running(), site.running("n2")
    site.world.started(job)
    step = site.world.step(job)
    site.world.started(job, step_id=step.step_id)
    before = site.world.do
    effects: list[Effect] = []

    def recording(command: Struct, caller: Caller = ROOT) -> Outcome:
        outcome = before(command, caller)
        effects.extend(outcome.effects)
        return outcome

    site.world.do = recording  # type: ignore[method-assign]  # to see what leaves the core
    assert site.run(main, f"{job}.{step.step_id}", str(other)).err == ""
    assert [one.kill_now for one in only(effects, TerminateStepOn)] == [True]
    assert [one.kill_now for one in only(effects, TerminateJobOn)] == [False]
