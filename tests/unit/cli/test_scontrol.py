"""scontrol: keywords, records, updates and steering."""

from __future__ import annotations

import signal

import pytest

from spritz.cli.scontrol import main
from spritz.model.job.record import Hold
from spritz.model.states import NodeFlag
from spritz_testing.builders import ALICE, BOB
from tests.unit.cli.site import Site


def record(text: str) -> dict[str, str]:
    """Keys and values of a record without blanks in its values."""
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


# -- the line itself


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["nosuch"], "invalid keyword: nosuch"),
        (["show"], "too few arguments for keyword:show"),
        (["upd"], "too few arguments for upd keyword"),
        (["show", "nosuch"], "invalid entity:nosuch for keyword:show "),
        (["show", "job", "1", "2"], "too many arguments for keyword:show"),
        (["hold"], "too few arguments for keyword:hold"),
        (["delete"], "too few arguments for delete keyword"),
        (["delete", "jobid=1"], "Invalid deletion entity: jobid=1"),
        (["write", "nosuch"], "invalid write argument:nosuch"),
        (["update", "nosuch=1"], "No valid entity in update command"),
    ],
)
def test_wrong_lines_are_told_in_slurms_words(site: Site, words: list[str], error: str) -> None:
    ran = site.run(main, *words)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.splitlines()[0] == error


@pytest.mark.parametrize("words", [["abort"], ["show", "bbstat"], ["-u", "x", "ping"]])
def test_what_is_not_built_is_refused_by_name(site: Site, words: list[str]) -> None:
    ran = site.run(main, *words)
    assert ran.status == 1
    assert "not supported by Spritz" in ran.err


def test_keywords_may_be_shortened_in_any_case(site: Site) -> None:
    assert site.run(main, "SHO", "hostn", "n[1-2]").lines == ["n1", "n2"]
    assert site.run(main, "pin").lines == ["Slurmctld(primary) at here is UP"]


def test_interactive_mode_echoes_and_repeats(site: Site) -> None:
    ran = site.run(main, stdin="show hostnames n[1-2]\n!!\nnosuch\n\nquit\nping\n")
    assert ran.lines == [
        "scontrol: show hostnames n[1-2]", "n1", "n2", "scontrol: !!", "n1", "n2",
        "scontrol: nosuch", "scontrol: ", "scontrol: quit",
    ]  # fmt: skip
    assert (ran.status, ran.err) == (1, "invalid keyword: nosuch\n")
    assert site.run(main, stdin="").out == "scontrol: \n"
    assert site.run(main, stdin="show 'x\n").status == 1


# -- names


def test_hostlists_need_no_controller(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/nonexistent/slurm.conf")
    assert site.run(main, "show", "hostnames", "a[1-2,7],b[09-10]").lines == ["a1", "a2", "a7", "b09", "b10"]
    assert site.run(main, "show", "hostlist", "n3,n1,n2").lines == ["n[3,1-2]"]
    assert site.run(main, "show", "hostlistsorted", "n3,n1,n2").lines == ["n[1-3]"]
    assert site.run(main, "show", "hostnames", SLURM_NODELIST="n[3-4]").lines == ["n3", "n4"]
    ran = site.run(main, "show", "hostnames", SLURM_JOB_NODELIST="n1")
    assert (ran.status, ran.out, ran.err) == (0, "", "scontrol: error: host list is empty\n")
    names = site.directory / "names"
    names.write_text("n1\nn2,n3\n")
    assert site.run(main, "show", "hostlist", str(names)).lines == ["n[1-3]"]


# -- records


def test_a_jobs_record_has_slurms_keys_in_slurms_order(site: Site) -> None:
    job = site.submit(
        name="train", hold=True, nodes_min=2, nodes_max=2, nodes_given=True, tasks=4, tasks_given=True, cpus_per_task=2,
        memory_mib_per_node=100, time_limit_minutes=5, comment="two words", nice=5,
    )  # fmt: skip
    lines = site.run(main, "show", "job", str(job)).out.splitlines()
    keys = [word.split("=")[0] for line in lines for word in line.split() if "=" in word]
    assert lines[0] == f"JobId={job} JobName=train"
    assert keys == [
        "JobId", "JobName", "UserId", "GroupId", "MCS_label", "Priority", "Nice", "Account", "QOS", "JobState",
        "Reason", "Dependency", "Requeue", "Restarts", "BatchFlag", "Reboot", "ExitCode", "RunTime", "TimeLimit",
        "TimeMin", "SubmitTime", "EligibleTime", "AccrueTime", "StartTime", "EndTime", "Deadline", "SuspendTime",
        "SecsPreSuspend", "LastSchedEval", "Scheduler", "Partition", "AllocNode:Sid", "ReqNodeList", "ExcNodeList",
        "NodeList", "NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "ReqB:S:C:T", "ReqTRES", "AllocTRES", "Socks/Node",
        "NtasksPerN:B:S:C", "CoreSpec", "MinCPUsNode", "MinMemoryNode", "MinTmpDiskNode", "Features", "DelayBoot",
        "OverSubscribe", "Contiguous", "Licenses", "LicensesAlloc", "Network", "Command", "WorkDir", "Comment",
        "StdErr", "StdIn", "StdOut", "TresPerTask",
    ]  # fmt: skip
    assert "   NumNodes=2-2 NumCPUs=8 NumTasks=4 CPUs/Task=2 ReqB:S:C:T=0:0:*:*" in lines
    assert "   ReqTRES=cpu=8,mem=200M,node=2,billing=8" in lines
    assert "   AllocTRES=(null)" in lines
    assert f"   StdOut=/tmp/slurm-{job}.out" in lines
    assert lines[-1] == ""


def test_one_line_a_record(site: Site) -> None:
    site.submit(hold=True)
    site.submit(hold=True)
    lines = site.run(main, "-o", "show", "jobs").out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("JobId=") and "JobState=PENDING" in line for line in lines)
    assert len(site.run(main, "-o", "show", "nodes").lines) == 4


def test_details_tell_the_share_of_every_node(site: Site) -> None:
    job = site.running("n1", "n2")
    text = site.run(main, "-d", "show", "job", str(job)).out
    assert "   JOB_GRES=(null)\n     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=\n" in text
    assert "DerivedExitCode=0:0" in text
    assert record(text)["AllocTRES"] == "cpu=2,node=2,billing=2"


def test_an_array_shows_its_rest_and_its_tasks(site: Site) -> None:
    array = site.submit(array="0-3%1")
    task = site.world.start(array)
    records = site.run(main, "-o", "show", "job", str(array)).lines
    assert records[0].startswith(f"JobId={array} ArrayJobId={array} ArrayTaskId=1-3%1 ArrayTaskThrottle=1 JobName=job ")
    assert records[1].startswith(f"JobId={task} ArrayJobId={array} ArrayTaskId=0 ArrayTaskThrottle=1 JobName=job ")
    (single,) = site.run(main, "-o", "show", "job", f"{array}_2").lines
    assert single.startswith(f"JobId={array} ArrayJobId={array} ArrayTaskId=2 ArrayTaskThrottle=1 ")
    assert f"StdOut=/tmp/slurm-{array}_2.out" in single
    ran = site.run(main, "show", "job", f"{array}_9")
    assert (ran.status, ran.out) == (1, f"Job {array}_9 not found\n")


def test_ended_jobs_tell_how(site: Site) -> None:
    job = site.running()
    site.world.started(job)
    site.world.now += 61
    site.world.finished(job, 3 << 8)
    shown = record(site.run(main, "show", "job", str(job)).out)
    assert (shown["JobState"], shown["Reason"], shown["ExitCode"], shown["RunTime"]) == (
        "FAILED", "NonZeroExitCode", "3:0", "00:01:01",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "out", "err"),
    [
        (["job", "99"], "", "slurm_load_jobs error: Invalid job id specified\n"),
        (["job", "abc"], "", "scontrol_print_job error: Invalid job id specified\n"),
        (["node", "nosuch"], "Node nosuch not found\n", ""),
        (["partition", "nosuch"], "Partition nosuch not found\n", ""),
        (["step", "99"], "", "slurm_get_job_steps error: Invalid job id specified\n"),
        (["reservation", "nosuch"], "Reservation nosuch not found\n", ""),
    ],
)
def test_what_is_not_there(site: Site, words: list[str], out: str, err: str) -> None:
    ran = site.run(main, "show", *words)
    assert (ran.status, ran.out, ran.err) == (1, out, err)


def test_a_node_and_a_partition(site: Site) -> None:
    site.running("n1")
    node = record(site.run(main, "show", "node", "n1").out)
    assert (node["State"], node["CPUAlloc"], node["CPUTot"], node["CPULoad"]) == ("MIXED", "1", "8", "1.50")
    assert (node["CfgTRES"], node["AllocTRES"]) == ("cpu=8,mem=8000M,billing=8", "cpu=1")
    partition = record(site.run(main, "show", "partition").out)
    assert (partition["PartitionName"], partition["Nodes"], partition["TotalCPUs"]) == ("debug", "n[1-4]", "32")
    assert partition["TRES"] == "cpu=32,mem=32000M,node=4,billing=32"


def test_show_config_prints_all_or_one_key(site: Site) -> None:
    lines = site.run(main, "show", "config").lines
    assert lines[1] == "ClusterName             = site"
    assert lines[-1] == "Slurmctld(primary) at here is UP"
    assert site.run(main, "show", "config", "maxarraysize").lines == ["MaxArraySize            = 1001"]


# -- steering


def test_hold_release_and_their_errors(site: Site) -> None:
    job = site.submit()
    site.caller = ALICE
    assert site.run(main, "hold", str(job)).err == ""
    assert site.world.job(job).hold is Hold.USER
    assert site.run(main, "release", f"jobname={site.world.job(job).spec.name}").err == ""
    assert site.world.job(job).hold is Hold.NONE
    ran = site.run(main, "hold", f"{job},99")
    assert (ran.status, ran.err) == (
        1,
        "Invalid job id specified for job 99\nslurm_suspend error: Invalid job id specified\n",
    )
    assert site.world.job(job).hold is Hold.USER
    assert site.run(main, "requeue", "abc").err == "Invalid job id specified for job abc\n"
    assert site.run(main, "hold", "jobname=nobody").status == 1


def test_requeue_and_special_exit(site: Site) -> None:
    job = site.running()
    site.world.started(job)
    assert site.run(main, "requeuehold", "State=SpecialExit", str(job)).err == ""
    site.world.gone(job)
    (line,) = site.run(main, "-o", "show", "job", str(job)).lines
    assert "JobState=SPECIAL_EXIT" in line or "JobState=REQUEUE_HOLD" in line
    assert site.run(main, "requeue", str(job)).err == f"Job is pending execution for job {job}\n"
    assert site.run(main, "requeuehold", "State=Nosuch", str(job)).status == 1


@pytest.mark.parametrize("word", ["requeue", "requeuehold"])
def test_a_job_that_requeues_itself_hears_how_that_ended(site: Site, word: str) -> None:
    """The SIGTERM of its end comes with the answer. Elsewhere scontrol can be ended by it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        job = site.running()
        site.run(main, word, "abc")
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert site.run(main, word, str(job), SLURM_JOB_ID=str(job)).status == 0
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


# -- updates


def test_a_pending_job_is_changed_key_by_key(site: Site) -> None:
    job = site.submit(hold=True, time_limit_minutes=5)
    words = (
        "Name=new timelimit=10 Comment=it's Nice=7 NumNodes=2-3 MinMemoryNode=1G Features= ReqNodeList=n[1-2] "
        "Gres=gpu:0 Requeue=0 Dependency= StdOut=o.txt OverSubscribe=NO Contiguous=yes"
    )
    ran = site.run(main, "update", f"jobid={job}", *words.replace("Gres=gpu:0 ", "").split())
    assert (ran.status, ran.err) == (0, "")
    spec = site.world.job(job).spec
    assert (spec.name, spec.comment, spec.nice, spec.time_limit_minutes) == ("new", "it's", 7, 10)
    assert (spec.nodes_min, spec.nodes_max, spec.memory_mib_per_node, spec.node_list) == (2, 3, 1024, ("n1", "n2"))
    assert (spec.requeue, spec.stdout, spec.sharing.value, spec.contiguous) == (False, "o.txt", "exclusive", True)
    assert site.run(main, "update", f"jobid={job}", "TimeLimit=+5").err == ""
    assert site.world.job(job).spec.time_limit_minutes == 15


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("nosuch=1", "Update of this parameter is not supported: nosuch=1\nRequest aborted\n"),
        ("timelimit=abc", "scontrol: error: Invalid TimeLimit value\n"),
        ("NumNodes=abc", 'scontrol: error: Invalid numeric value "abc" for requested node count.\n'),
        ("NumTasks=0", 'scontrol: error: Invalid numeric value "0" for NumTasks.\n'),
        ("Partition=nosuch", "Invalid partition name specified for job {job}\n"),
        ("SiteFactor=1", "scontrol: error: update of SiteFactor is not supported by Spritz: "),
        ("MinMemoryNode=x", 'scontrol: error: Invalid memory specification "x"\n'),
        ("StartTime=xyz", "Invalid time specification (pos=0): xyz\nNo changes specified\n"),
        ("Dependency=nosuch:1", "scontrol: error: Job dependency problem"),
        ("Requeue=maybe", "scontrol: error: Invalid Requeue value: maybe\n"),
    ],
)
def test_bad_values_change_nothing(site: Site, word: str, error: str) -> None:
    job = site.submit(hold=True, name="kept")
    before = site.world.job(job)
    ran = site.run(main, "update", f"JobId={job}", "Name=changed", word)
    assert ran.status == 1
    assert ran.err.startswith(error.format(job=job))
    assert site.world.job(job) == before


def test_one_number_of_nodes_is_the_least(site: Site) -> None:
    """(slurm) `NumNodes=2` leaves the most as it is, and is refused above it."""
    job = site.submit(hold=True)
    shown = []
    for text in ("2", "1-2", "2", "1", "3", "2-2", "0"):
        ran = site.run(main, "update", f"JobId={job}", f"NumNodes={text}")
        spec = site.world.job(job).spec
        shown.append((text, ran.status, spec.nodes_min, spec.nodes_max or 0))
    assert shown == [
        ("2", 0, 2, 0),
        ("1-2", 0, 1, 2),
        ("2", 0, 2, 2),
        ("1", 0, 1, 2),
        ("3", 1, 1, 2),
        ("2-2", 0, 2, 2),
        ("0", 1, 2, 2),
    ]
    assert ran.err == f"Node count specification invalid for job {job}\n"


@pytest.mark.parametrize(
    ("text", "sharing"),
    [("1", "oversubscribe"), ("4", "oversubscribe"), ("YES", "oversubscribe"), ("0", "exclusive"), ("no", "exclusive")],
)
def test_sharing_may_be_a_number(site: Site, text: str, sharing: str) -> None:
    """(slurm)"""
    job = site.submit(hold=True)
    assert site.run(main, "update", f"JobId={job}", f"OverSubscribe={text}").err == ""
    assert site.world.job(job).spec.sharing.value == sharing
    for bad in ("-1", "65534", "x"):
        ran = site.run(main, "update", f"JobId={job}", f"OverSubscribe={bad}")
        assert ran.err.startswith(f"scontrol: error: Invalid OverSubscribe value: {bad}")


def test_dependency_zero_is_none(site: Site) -> None:
    first = site.submit(hold=True)
    job = site.submit(hold=True)
    for text, count in ((f"afterok:{first}", 1), ("0", 0)):
        assert site.run(main, "update", f"JobId={job}", f"Dependency={text}").err == ""
        assert len(site.world.job(job).spec.dependencies) == count


@pytest.mark.parametrize(
    ("words", "job", "nice"),
    [
        (["jobid", "{job}", "nice=7"], "kept", 7),
        (["job", "{job}", "name", "x", "nice"], "x", 100),
        (["jobid={job}", "nice", "name", "y"], "y", 100),
    ],
)
def test_an_update_s_values_may_be_words_of_their_own(site: Site, words: list[str], job: str, nice: int) -> None:
    number = site.submit(hold=True, name="kept")
    ran = site.run(main, "update", *(word.format(job=number) for word in words))
    assert (ran.status, ran.err) == (0, "")
    assert (site.world.job(number).spec.name, site.world.job(number).spec.nice) == (job, nice)


@pytest.mark.parametrize("words", [("nice", "5"), ("foo",), ("comment",), ("nice=5", "timelimit")])
def test_a_key_without_its_value_changes_nothing(site: Site, words: tuple[str, ...]) -> None:
    number = site.submit(hold=True)
    before = site.world.job(number)
    ran = site.run(main, "update", "job", str(number), *words)
    assert (ran.status, ran.err) == (1, f"Invalid input: {words[-1]}\nRequest aborted\n")
    assert site.world.job(number) == before


def test_updates_without_a_job_or_a_change(site: Site) -> None:
    job = site.submit(hold=True)
    assert site.run(main, "update", f"jobid={job}").err == "No changes specified\n"
    assert site.run(main, "update", "jobid=99", "name=x").err == "Invalid job id specified for job 99\n"
    assert site.run(main, "update", "jobid=abc", "name=x").err == "Invalid job id specified for job abc\n"
    site.caller = BOB
    assert site.run(main, "update", f"jobid={job}", "name=x").status == 1


def test_every_key_that_works_reaches_a_field_that_the_core_takes() -> None:
    """The tables of the command and of the core agree."""
    from spritz.cli.administration.control.update.job_keys import KEYS
    from spritz.core.decide.waiting.update import PENDING

    samples = {
        "ArrayTaskThrottle": "2", "Contiguous": "yes", "CoreSpec": "1", "CPUsPerTask": "1", "Deadline": "now+1hour",
        "Dependency": "afterok:1", "EligibleTime": "now", "EndTime": "now+1hour", "ExcNodeList": "n1",
        "Gres": "gpu:1", "GresList": "gpu:1", "TresPerNode": "gres/gpu:1", "TresPerJob": "gres/gpu:1",
        "TresPerSocket": "gres/gpu:1", "TresPerTask": "gres/gpu:1", "MinCPUsNode": "1", "MinMemoryCPU": "10",
        "MinMemoryNode": "10", "MinTmpDiskNode": "10", "Nice": "1", "NodeList": "n1", "NtasksPerCore": "1",
        "NtasksPerNode": "1", "NtasksPerSocket": "1", "NumCPUs": "1", "NumNodes": "1", "NumTasks": "1",
        "OverSubscribe": "OK", "Priority": "1", "ReqCores": "1", "ReqNodeList": "n1", "ReqNodes": "1", "ReqProcs": "1",
        "ReqSockets": "1", "ReqThreads": "1", "Requeue": "1", "Shared": "YES", "StartTime": "now", "TasksPerNode": "1",
        "TimeMin": "1", "DelayBoot": "1", "Switches": "1", "wait-for-switch": "1", "CpusPerTres": "gres/gpu:1",
        "MemPerTres": "gres/gpu:1", "TresBind": "gres/gpu:closest", "MailType": "END",
    }  # fmt: skip
    for name, key in KEYS.items():
        if key.changes is not None:
            assert set(key.changes(samples.get(name, "x"))) <= PENDING, name


def test_the_entity_to_update_may_be_named_by_three_letters(site: Site) -> None:
    job = site.submit(hold=True)
    assert site.run(main, "update", f"job={job}", "name=renamed").err == ""
    assert site.world.job(job).spec.name == "renamed"
    assert site.run(main, "update", "Node=n1", "state=drain", "reason=x").err == ""
    assert site.world.state.nodes["n1"].flags & NodeFlag.DRAIN
    name = next(iter(site.world.state.partitions))
    assert site.run(main, "update", f"part={name}", "state=down").err == ""


def test_nodes_are_drained_with_a_reason_and_resumed(site: Site) -> None:
    ran = site.run(main, "update", "nodename=n1", "state=drain")
    assert ran.err == "You must specify a reason when DOWNING or DRAINING a node. Request denied\n"
    assert site.run(main, "update", "nodename=n[1-2]", "state=DRAIN", "reason=two words").err == ""
    assert site.world.state.nodes["n2"].flags & NodeFlag.DRAIN
    assert "Reason=two words [root@" in site.run(main, "show", "node", "n1").out
    assert site.run(main, "update", "nodename=n[1-2]", "state=resu").err == ""
    assert not site.world.state.nodes["n2"].flags & NodeFlag.DRAIN
    assert site.run(main, "update", "nodename=nosuch", "state=drain", "reason=x").err.startswith(
        "slurm_update error: Invalid node name specified\n"
    )
    assert site.run(main, "update", "nodename=n1", "state=nosuch").err.startswith(
        "Invalid input: state=nosuch\nRequest aborted\n"
    )
    assert "Invalid node state specified" in site.run(main, "update", "nodename=n1", "state=cancel_reboot").err


def test_a_reason_may_be_attributed_to_another_user(site: Site) -> None:
    assert site.run(main, "update", "nodename=n1", "State=DRAIN", "Reason=disk", "ReasonUid=4711").err == ""
    node = site.world.state.nodes["n1"]
    assert (node.reason, node.reason_uid) == ("disk", 4711)
    assert site.run(main, "update", "nodename=n1", "ReasonUid=0").err == ""
    node = site.world.state.nodes["n1"]
    assert (node.reason, node.reason_uid) == ("disk", 0)
    ran = site.run(main, "update", "nodename=n1", "ReasonUid=no such user")
    assert (ran.status, ran.err) == (1, "scontrol: error: Invalid user: no such user\n")


def test_what_gpus_bring_along_is_changed_for_a_pending_job(site: Site) -> None:
    job = site.submit(hold=True, memory_mib_per_node=10)
    words = ["CpusPerTres=gres:gpu:4", "MemPerTres=gres/gpu:512", "TresBind=gres/gpu:single:2", "NodeList=n[1-2]"]
    assert site.run(main, "update", f"jobid={job}", *words).err == ""
    spec = site.world.job(job).spec
    assert (spec.cpus_per_gpu, spec.memory_mib_per_gpu, spec.memory_mib_per_node) == (4, 512, None)
    assert (spec.gpu_bind, spec.node_list) == ("single:2", ("n1", "n2"))
    ran = site.run(main, "update", f"jobid={job}", "CpusPerTres=gres/shard:4")
    assert (ran.status, ran.err) == (1, "scontrol: error: Invalid CpusPerTres value: gres/shard:4\n")


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("-1", 'Invalid numeric value "-1" for NumCPUs.'),
        ("abc", 'Invalid numeric value "abc" for NumCPUs.'),
        ("1-x", 'Invalid numeric value "1-x" for NumCPUs.'),
        ("0", "Invalid NumCPUs value: 0"),
        ("4-2", "Invalid NumCPUs value: 4-2"),
    ],
)
def test_a_number_of_cpus_that_is_none_is_said_whole(site: Site, value: str, error: str) -> None:
    job = site.submit(hold=True)
    ran = site.run(main, "update", f"jobid={job}", f"NumCPUs={value}")
    assert (ran.status, ran.err) == (1, f"scontrol: error: {error}\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("Users=root",), "Parameter Users=root specified more than once."),
        (("EndTime=now+2days",), "StartTime + Duration does not equal EndTime."),
        (("MaxStartDelay=-1",), "Invalid duration MaxStartDelay=-1."),
    ],
)
def test_reservations_that_contradict_themselves(site: Site, words: tuple[str, ...], error: str) -> None:
    plain = ("StartTime=now+1day", "Duration=60", "Users=root", "Nodes=n1")
    ran = site.run(main, "create", "reservation", *plain, *words)
    assert (ran.status, ran.err) == (1, f"scontrol: error: {error}  No reservation created.\n")


# -- scripts


def test_a_script_is_written_out_byte_for_byte(site: Site) -> None:
    from msgspec.structs import replace

    job = site.submit(hold=True)
    site.scripts["key"] = b"#!/bin/sh\necho \xff\n"
    record = site.world.job(job)
    site.world.state.jobs[job] = replace(record, spec=replace(record.spec, script_key="key"))
    assert (
        site.run(main, "write", "batch_script", str(job)).out
        == f"batch script for job {job} written to slurm-{job}.sh\n"
    )
    assert (site.directory / f"slurm-{job}.sh").read_bytes() == b"#!/bin/sh\necho \xff\n"
    ran = site.run(main, "write", "batch_script", str(job), "/nonexistent/x")
    assert ran.status == 1
    assert "No such file or directory" in ran.err
    assert site.run(main, "write", "batch_script", "99").err == (
        "job script retrieval failed: Invalid job id specified\n"
    )
    site.world.state.jobs[job] = record


def test_entities_may_be_shortened_and_given_with_an_equals_sign(site: Site) -> None:
    job = site.submit(hold=True)
    assert site.run(main, "show", f"job={job}").lines[0] == f"JobId={job} JobName=job"
    assert site.run(main, "update", f"job={job}", "name=x").err == ""
    assert site.run(main, "update", "node=n1", "state=drain", "reason=x").err == ""
    assert site.run(main, "update", "part=debug", "state=down").err == ""
    assert site.world.job(job).spec.name == "x"


def test_what_is_no_debug_flag_is_told_in_slurms_words(site: Site) -> None:
    """What 22.05 prints; `-Steps` is no option."""
    ran = site.run(main, "setdebugflags", "steps")
    assert (ran.status, ran.out + ran.err) == (1, "invalid debug flag: steps\nUsage: setdebugflags [+|-]NAME\n")
    for word in ("+foo", "-foo", "-Steps,foo"):
        ran = site.run(main, "setdebugflags", word)
        assert ran.status == 1
        assert "scontrol: error: Invalid DebugFlag: foo\n" in ran.err
        assert f"invalid debug flag: {word}\n" in ran.out + ran.err


def test_tasks_of_an_array_that_are_none_are_told_after_the_others(site: Site) -> None:
    """The words of scontrol 22.05; tasks are named without brackets."""
    array = site.submit(array="0-7", hold=True)
    for words in (("update", f"jobid={array}_[5-9]", "nice=5"), ("hold", f"{array}_[5-9]")):
        ran = site.run(main, *words)
        assert (ran.status, ran.err) == (1, f"{array}_5-7: No error\n{array}_8-9: Invalid job id specified\n")
    ran = site.run(main, "hold", f"{array}_[8-9]")
    assert (ran.status, ran.err) == (1, f"{array}_8-9: Invalid job id specified\n")


def test_processes_of_the_step_for_sessions_are_listed_by_its_name() -> None:
    from spritz.cli.administration.control.local import Process

    place = {"SLURM_JOB_ID": "5", "SLURMD_NODENAME": "n1"}
    assert Process(1, place | {"SLURM_STEP_ID": "4294967292"}).step == "extern"
    assert Process(1, place | {"SLURM_STEP_ID": "3"}).step == "3"
    assert Process(1, place).step == "batch"
