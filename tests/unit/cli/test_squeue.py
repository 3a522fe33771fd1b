"""squeue: what it lists, in which form and order, and what it says of bad input."""

from __future__ import annotations

import pwd
from types import SimpleNamespace

import pytest

from spritz.cli.scontrol import main as scontrol
from spritz.cli.squeue import main
from spritz.model.commands.job import ResumeJob, SuspendJob
from spritz.model.events.job import JobPreempted
from spritz.model.job.job_filter import JobTarget
from spritz.notation.octets import plain
from spritz.notation.times import format_time
from spritz_testing.builders import ALICE, BOB
from tests.unit.cli.site import Site

HEADER = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"


def test_an_empty_queue_is_a_heading(site: Site) -> None:
    ran = site.run(main)
    assert (ran.status, ran.lines, ran.err) == (0, [HEADER], "")


def test_pending_and_running_jobs_stand_in_slurms_columns(site: Site) -> None:
    running = site.running("n1", "n2", name="a-name-that-is-long")
    held = site.submit(hold=True)
    site.world.now += 65
    assert site.run(main).lines == [
        HEADER,
        f"{held:>18}     debug      job    alice PD       0:00      1 (JobHeldUser)",
        f"{running:>18}     debug a-name-t    alice  R       1:05      2 n[1-2]",
    ]


def test_finished_jobs_show_only_when_asked_for(site: Site) -> None:
    job = site.running()
    site.world.started(job)
    site.world.finished(job, 3 << 8)
    assert site.run(main, "-h").lines == []
    assert site.run(main, "-h", "-j", str(job)).lines == []
    assert site.run(main, "-h", "-t", "all", "-o", "%t %T %r %R").lines == [
        "F FAILED NonZeroExitCode (NonZeroExitCode)"
    ]
    assert site.run(main, "-h", "-t", "CD,f", "-o", "%i").lines == [str(job)]


def test_one_unknown_id_is_an_error_and_two_are_not(site: Site) -> None:
    one, two = site.run(main, "-j", "98"), site.run(main, "-h", "-j", "98,99")
    assert (one.status, one.out, one.err) == (1, "", "slurm_load_jobs error: Invalid job id specified\n")
    assert (two.status, two.out, two.err) == (0, "", "")


@pytest.mark.parametrize("word", ["abc", "1,abc", "0", "1_x", "1." + "9" * 30, "\x00", "9" * 400])
def test_what_is_no_id_is_refused(site: Site, word: str) -> None:
    ran = site.run(main, "-j", word)
    assert ran.status == 1
    assert ran.err.startswith("squeue: error: Invalid job id: ")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["-u", "alice"], {"a"}),
        (["-u", "1002"], {"b"}),
        (["-u", "alice,bob"], {"a", "b"}),
        (["-n", "b"], {"b"}),
        (["-p", "debug"], {"a", "b"}),
        (["-p", "nosuch"], set()),
        (["-A", "physics"], {"a"}),
        (["-t", "running"], {"a"}),
        (["-t", "pd"], {"b"}),
        (["-w", "n1"], {"a"}),
        (["-w", "n2"], set()),
        (["-R", "nosuch"], set()),
        (["-q", "nosuch"], set()),
        (["-L", "nosuch"], set()),
    ],
)
def test_filters_choose(site: Site, words: list[str], names: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    users = {"alice": 1001, "bob": 1002}
    names_of_users = {uid: name for name, uid in users.items()}
    monkeypatch.setattr(pwd, "getpwnam", lambda name: SimpleNamespace(pw_uid=users[name]))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=names_of_users[uid]))
    site.running(name="a", account="physics")
    site.submit(BOB, name="b")
    assert set(site.run(main, "-h", "-o", "%j", *words).lines) == names


def test_an_unknown_user_has_no_jobs_and_is_told(site: Site) -> None:
    site.submit()
    ran = site.run(main, "-u", "no-such-user")
    assert (ran.status, ran.lines, ran.err) == (0, [HEADER], "squeue: error: Invalid user: no-such-user\n\n")


def test_an_unknown_node_or_state_is_refused(site: Site) -> None:
    assert site.run(main, "-w", "nosuch").err == "squeue: error: Invalid node name nosuch\n"
    ran = site.run(main, "-t", "R,nosuch")
    assert ran.status == 1
    assert ran.err.startswith("squeue: error: Invalid job state specified: nosuch\nsqueue: error: Valid job states")


def test_the_command_line_beats_the_environment(site: Site) -> None:
    job = site.submit(hold=True)
    assert site.run(main, "-h", SQUEUE_FORMAT="%j").lines == ["job"]
    assert site.run(main, "-h", SQUEUE_FORMAT2="jobid:6,state").lines == [f"{job:<6}PENDING             "]
    assert site.run(main, "-h", "-o", "%A", SQUEUE_FORMAT2="state").lines == [str(job)]
    assert site.run(main, "-h", "-o", "%A", SQUEUE_STATES="R").lines == []
    assert site.run(main, "-h", "-o", "%A", "-t", "PD", SQUEUE_STATES="R").lines == [str(job)]


def test_jobs_are_sorted_by_several_keys(site: Site) -> None:
    first, second, third = (site.submit(name=name, hold=True) for name in ("b", "a", "b"))
    assert site.run(main, "-h", "-o", "%A").lines == [str(third), str(second), str(first)]
    assert site.run(main, "-h", "-o", "%A", "-S", "j,i").lines == [str(second), str(first), str(third)]
    assert site.run(main, "-h", "-o", "%A", "-S", "-j,-i").lines == [str(third), str(first), str(second)]
    assert site.run(main, "-h", "-o", "%A", SQUEUE_SORT="+i").lines == [str(first), str(second), str(third)]
    ran = site.run(main, "-S", "nosuch")
    assert (ran.status, ran.err) == (1, "squeue: error: Invalid sort specification: s\n")


def test_ids_sort_as_numbers(site: Site) -> None:
    jobs = [site.submit(hold=True) for _ in range(12)]
    assert site.run(main, "-h", "-o", "%A", "-S", "i").lines == [str(job) for job in jobs]


def test_an_arrays_rest_is_one_line_or_one_a_task(site: Site) -> None:
    array = site.submit(array="0-5%2")
    site.world.start(array)
    form = ("-h", "-S", "i", "-o", "%i %F %K %t")
    assert site.run(main, *form).lines == [f"{array}_0 {array} 0 R", f"{array}_[1-5%2] {array} 1-5%2 PD"]
    assert site.run(main, "-r", *form).lines == [
        f"{array}_0 {array} 0 R",
        *[f"{array}_{task} {array} {task} PD" for task in range(1, 6)],
    ]
    assert site.run(main, *form, SQUEUE_ARRAY="").lines[1:] == site.run(main, "--array", *form).lines[1:]


def test_single_tasks_can_be_asked_for(site: Site) -> None:
    array = site.submit(array="0-5", hold=True)
    form = ("-h", "-S", "i", "-o", "%i")
    assert site.run(main, *form, "-j", f"{array}_4").lines == [f"{array}_4"]
    assert site.run(main, *form, "-j", f"{array}_[1-2],{array}_5").lines == [f"{array}_{task}" for task in (1, 2, 5)]
    assert site.run(main, *form, "-j", f"{array}_4,{array}").lines == [f"{array}_[0-5]"]
    ran = site.run(main, *form, "-j", f"{array}_99")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_pending_tasks_with_records_of_their_own_are_in_the_arrays_row(site: Site) -> None:
    """squeue(1) --array-unique: without it they are grouped; what 22.05 prints."""
    array = site.submit(array="0-5%2")
    site.world.start(array)
    site.run(scontrol, "hold", f"{array}_3")
    site.run(scontrol, "update", f"jobid={array}_5", "name=other")
    form = ("-h", "-S", "i", "-t", "PD", "-o", "%i %r %R")
    reasons = "None,JobHeldAdmin"
    rows = site.run(main, *form).lines
    assert rows == [f"{array}_5 None (None)", f"{array}_[1-4] {reasons} ({reasons})"]
    unique = [
        f"{array}_3 JobHeldAdmin (JobHeldAdmin)",
        f"{array}_5 None (None)",
        f"{array}_[1-2,4%2] None (None)",
    ]
    assert site.run(main, *form, "--array-unique").lines == unique
    assert site.run(main, *form, SQUEUE_ARRAY_UNIQUE="").lines == unique
    assert site.run(main, "-h", "-r", "-t", "PD", "-o", "%K", "-S", "i").lines == ["1", "2", "3", "4", "5"]
    assert site.run(main, "-h", "-o", "%i", "-j", f"{array}_3").lines == [f"{array}_3"]


def test_a_long_task_list_is_cut_as_slurm_cuts_it(site: Site) -> None:
    site.submit(array=",".join(str(task) for task in range(0, 200, 2)) + ",201", hold=True)
    (line,) = site.run(main, "-h", "-o", "%K").lines
    assert line.endswith("...")
    assert len(line) <= 70


def test_a_job_of_two_partitions_is_listed_twice_with_priority(site: Site) -> None:
    from spritz.model.commands.cluster import CreatePartition
    from spritz.model.node.partition import Partition

    site.world.ok(CreatePartition(partition=Partition(name="long", nodes=("n1",))))
    site.submit(partitions=("debug", "long"))
    assert site.run(main, "-h", "-o", "%P").lines == ["debug,long"]
    assert sorted(site.run(main, "-h", "-P", "-o", "%P").lines) == ["debug", "long"]


def test_start_lists_pending_jobs_by_their_expected_start(site: Site) -> None:
    site.running()
    job = site.submit(hold=True, name="waits")
    header, line = site.run(main, "--start").lines
    assert " ".join(header.split()) == "JOBID PARTITION NAME USER ST START_TIME NODES SCHEDNODES NODELIST(REASON)"
    assert line.split() == [str(job), "debug", "waits", "alice", "PD", "N/A", "1", "(null)", "(JobHeldUser)"]


def test_run_time_can_be_asked_for(site: Site) -> None:
    early = site.running(name="early")
    site.world.now += 600
    late = site.running("n2", name="late")
    site.world.now += 60
    assert site.run(main, "-h", "-o", "%A", "--running-over", "5:00").lines == [str(early)]
    assert site.run(main, "-h", "-o", "%A", "--running-under", "5:00").lines == [str(late)]
    assert site.run(main, "--running-over", "x").status == 1


def test_notme_leaves_out_the_callers_jobs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: ALICE.uid)
    site.submit(name="mine")
    site.submit(BOB, name="other")
    assert site.run(main, "-h", "-o", "%j", "--me").lines == ["mine"]
    assert site.run(main, "-h", "-o", "%j", "--notme").lines == ["other"]


def test_only_job_state_takes_no_other_filter(site: Site) -> None:
    job = site.submit(hold=True)
    assert site.run(main, "-h", "--only-job-state", "-o", "%i=%T", "-j", str(job)).lines == [f"{job}=PENDING"]
    ran = site.run(main, "--only-job-state", "-u", "root")
    assert (ran.status, ran.err) == (1, "squeue: error: --only-job-state cannot be used with --user\n")


@pytest.mark.parametrize("word", ["99", "foo", "12_3"])
def test_a_step_is_asked_for_by_job_and_step(site: Site, word: str) -> None:
    ran = site.run(main, "-s", word)
    assert (ran.status, ran.err) == (1, f"squeue: error: Invalid job_step id: {word}.??\n")


def test_time_of_a_step_leaves_out_suspensions(site: Site) -> None:
    job = site.running()
    site.world.started(job)
    site.world.advance(60.0)
    site.world.ok(SuspendJob(target=JobTarget(job)))
    site.world.advance(200.0)
    assert site.run(main, "-h", "-s", "-o", "%M").lines == ["1:00"]
    site.world.ok(ResumeJob(target=JobTarget(job)))
    site.world.advance(60.0)
    assert site.run(main, "-h", "-s", "-o", "%M").lines == ["2:00"]


def test_steps_of_running_jobs_are_listed(site: Site) -> None:
    job = site.running()
    site.world.started(job)
    site.world.step(job, name="train")
    assert site.run(main, "-s").lines == [
        "         STEPID     NAME PARTITION     USER      TIME NODELIST",
        f"{f'{job}.0':>15}    train     debug    alice      0:00 n1",
        f"{f'{job}.batch':>15}    batch     debug    alice      0:00 n1",
    ]
    assert site.run(main, "-h", "-s", f"{job}.0", "-o", "%i %A").lines == [f"{job}.0 1"]
    assert site.run(main, "-h", "-s", f"{job}.7").lines == []
    assert site.run(main, "-h", "-s", "99.0").lines == []
    assert site.run(main, "-h", "-s", "-O", "stepname:8,stepstate:8,numtasks:2").lines[0] == "train   RUNNING 1 "


def test_every_letter_and_name_shows_something_for_every_kind_of_job(site: Site) -> None:
    """No field may fail on a value that is missing: pending, running, ended, array, with and without requests."""
    from spritz.presentation.job import job_fields

    site.submit(array="0-3", hold=True)
    site.running("n1", "n2", memory_mib_per_cpu=10, cpus_per_task=2, time_limit_minutes=5, comment="c")
    ended = site.running("n3")
    site.world.started(ended)
    site.world.finished(ended)
    for letter, field in job_fields.LETTERS.items():
        ran = site.run(main, "-t", "all", "-o", f"%{letter}|")
        assert (ran.status, ran.err, len(ran.lines)) == (0, "", 4), letter
        assert ran.lines[0] == f"{field.header}|"
    for name, field in job_fields.NAMES.items():
        ran = site.run(main, "-t", "all", "-O", f"{name}:40|")
        assert ran.status == 0, name
        assert (ran.err == "") is (not field.refused), (name, ran.err)


def test_a_field_that_is_not_built_is_named(site: Site) -> None:
    ran = site.run(main, "-h", "-O", "resvport,jobid:4")
    why = "ports are reserved for steps: `squeue --steps` has them"
    assert ran.err == f"squeue: error: Invalid job format specification: resvport: {why}\n"
    ran = site.run(main, "-o", "%!x%j")
    assert ran.err == "squeue: error: Invalid job format specification: !\n"
    assert ran.out == "%!xNAME\n"


def test_patterns_of_files_are_kept_or_filled_in(site: Site) -> None:
    job = site.submit(stdout="logs/%x-%j.out", name="train", hold=True)
    assert site.run(main, "-h", "-O", "stdout:").lines == ["/tmp/logs/%x-%j.out"]
    assert site.run(main, "-h", "-O", "stdout:", "--expand-patterns").lines == [f"/tmp/logs/train-{job}.out"]


def test_memory_keeps_its_unit_with_noconvert(site: Site) -> None:
    site.submit(memory_mib_per_node=2048, hold=True)
    assert site.run(main, "-h", "-o", "%m").lines == ["2G"]
    assert site.run(main, "-h", "-o", "%m", "--noconvert").lines == ["2048M"]
    assert "mem=2048M" in site.run(main, "-h", "-O", "tres-alloc:60", "--noconvert").out


@pytest.mark.parametrize("value", ["0", "abc", "-1", "9" * 50, ""])
def test_a_bad_interval_is_refused(site: Site, value: str) -> None:
    ran = site.run(main, f"--iterate={value}")
    assert (ran.status, ran.err) == (1, f"squeue: error: --iterate={value}\n\n")


def test_a_stray_word_is_refused(site: Site) -> None:
    ran = site.run(main, "stray")
    assert ran.status == 1
    assert ran.err == "squeue: error: Unrecognized option: stray\n"


def test_without_a_controller_the_error_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "ClusterName=nobody\nSlurmctldHost=localhost\nSlurmctldPort=1\nMessageTimeout=1\n"
    (site.directory / "other.conf").write_text(text)
    monkeypatch.setenv("SLURM_CONF", str(site.directory / "other.conf"))
    ran = site.run(main)
    assert ran.status == 1
    assert ran.err.startswith("slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")


def test_a_listing_asks_only_for_what_it_shows(site: Site) -> None:
    site.submit(hold=True)
    assert site.run(main, "-vv", "-h", "-r", "-o", "%i", "-S", "u").err == (
        "squeue: asking for 6 values of each job: id, array_job_id, array_task_id, array, het_job_id, spec.user\n"
    )


@pytest.mark.parametrize("option", ["-n", "-p", "-A", "-q", "-R", "-L"])
def test_words_that_are_not_utf8_are_asked_for_as_they_are(site: Site, option: str) -> None:
    ran = site.run(main, "-h", option, "\udcff")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_a_name_that_is_not_utf8_is_printed_as_it_was_given(site: Site) -> None:
    site.submit(hold=True, name=plain("caf\udce9"))
    assert site.run(main, "-h", "-o", "%.6j|").out == "  caf\udce9|\n"


def test_absurd_widths_and_lists_end_quickly(site: Site) -> None:
    site.submit(hold=True)
    assert site.run(main, "-w", "n[1-100000]").err == "squeue: error: Too many hosts in range `1-100000'\n"
    assert len(site.run(main, "-h", "-o", f"%{'9' * 400}j").out) < 200_000
    assert site.run(main, "-h", "-S", "j," * 20_000 + "j", "-o", "%j").lines == ["job"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-t", "foo", "-t", "PD"], "Invalid job state specified: foo"),
        (["-j", "abc", "-j", "1"], "Invalid job id: abc"),
    ],
)
def test_what_a_later_option_displaces_is_read_too(site: Site, words: list[str], complaint: str) -> None:
    ran = site.run(main, *words)
    assert (ran.status, ran.out) == (1, "")
    assert complaint in ran.err


@pytest.mark.parametrize(("limit", "end"), [(5, "start+300"), (None, "NONE")])
def test_the_end_of_a_job_that_waits_follows_from_its_expected_start(site: Site, limit: int | None, end: str) -> None:
    """As squeue 22.05 prints it; without an expected start neither is known."""
    begin_at = site.world.now + 3600
    job = site.submit(begin_at=begin_at, time_limit_minutes=limit)
    held = site.submit(hold=True, time_limit_minutes=limit)
    found = end if end == "NONE" else format_time(begin_at + 300)
    assert site.run(main, "-h", "-o", "%i %S %e", "-S", "i").lines == [
        f"{job} {format_time(begin_at)} {found}",
        f"{held} N/A N/A",
    ]
    shown = "Unknown" if end == "NONE" else found
    assert f"StartTime={format_time(begin_at)} EndTime={shown}" in site.run(scontrol, "show", "job", str(job)).out


def test_a_running_job_that_has_been_told_to_make_room_says_so(site: Site) -> None:
    """In its GraceTime (docs/decisions/0033). States are Slurm's."""
    victim = site.running()
    world = site.world
    event = JobPreempted(at=world.now, job_id=victim, mode="REQUEUE", ends_at=world.now + 60, by_job_id=0)
    assert site.run(main, "-h", "-o", "%t %r").lines == ["R None"]
    world.machine.apply(event)
    world.events += (event,)
    assert site.run(main, "-h", "-o", "%t %r").lines == ["R BeingPreempted"]
    assert site.run(main, "-h", "-O", "statecompact:4,reason:20").lines == ["R   BeingPreempted      "]
