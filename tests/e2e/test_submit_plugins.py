"""JobSubmitPlugins in a real controller: order, rights, words for the user, limits, restarts.

Source: slurm.conf(5) JobSubmitPlugins; lines and statuses as Slurm 22.05 has them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from spritz.client.errors import RemoteError
from spritz.model.commands.job import Done, HoldJob, JobSubmitted, ReleaseJob, SubmitJob, UpdateJob, WillRun
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import Job, JobSpec
from spritz.model.queries.daemons import Reconfigure
from spritz.model.queries.events import Counters, Statistics
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import GetScript, ListJobs, Script
from tests.e2e.cluster import BIN
from tests.e2e.controller_process import ControllerProcess, a_job, until
from tests.e2e.users import NOBODY, as_user

Make = Callable[..., ControllerProcess]

LUA = """
function slurm_job_submit(d, parts, uid)
  if d.name == "told" then slurm.log_user("hello %d", 3); slurm.user_msg("second") end
  if d.name == "no" then slurm.log_user("bad\\nlines"); return slurm.ERROR end
  if d.name == "limit" then slurm.log_user("why"); return slurm.ESLURM_MISSING_TIME_LIMIT end
  if d.name == "part" then d.partition = "nope" end
  if d.name == "give" then
    d.admin_comment = "given"; d.priority = 4711; d.nice = slurm.NICE_OFFSET - 3; d.comment = "c"
    d.script = "#!/bin/sh\\necho changed\\n"
  end
  if d.name == "loop" then while true do end end
  if d.name == "program" then io.popen("exec sleep 1000"):read("a") end
  if d.name == "end" then os.exit(3) end
  if d.name == "jobs" then local n = 0; for _ in pairs(slurm.jobs) do n = n + 1 end; slurm.log_user("%d", n) end
  return slurm.SUCCESS
end
function slurm_job_modify(d, rec, parts, uid)
  if d.priority == 0 then slurm.log_user("held"); d.comment = "by hand" end
  if d.comment == "deny" then slurm.log_user("no way"); return slurm.ESLURM_ACCESS_DENIED end
  if d.comment == "say" then slurm.log_user("done so"); d.comment = rec.name .. "!" end
  return slurm.SUCCESS
end
"""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes a controller that is ended with the test; files are put next to slurm.conf."""
    made: list[ControllerProcess] = []

    def start(extra: str, **files: str) -> ControllerProcess:
        for name, text in files.items():
            (tmp_path / f"job_submit.{name}").write_text(text)
        controller = ControllerProcess(tmp_path, extra=extra)
        made.append(controller)
        return controller.start()

    yield start
    for controller in made:
        controller.kill()


def submit(controller: ControllerProcess, name: str = "job", **fields: object) -> JobSubmitted:
    with controller.connect() as connection:
        return connection.call(a_job(name, **fields), JobSubmitted)


def refused(controller: ControllerProcess, name: str = "job", **fields: object) -> tuple[str, tuple[str, ...]]:
    """Error name and lines."""
    with pytest.raises(RemoteError) as caught:
        submit(controller, name, **fields)
    return caught.value.code, caught.value.details


def job(controller: ControllerProcess, number: int) -> Job:
    with controller.connect() as connection:
        pieces = connection.stream(ListJobs(all=True), Jobs)
        return next(one for piece in pieces for one in piece.jobs if one.id == number)


def command(controller: ControllerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": "/",
        "SLURM_CONF": str(controller.conf),
        "SPRITZ_NO_SERVER": "1",
    }
    return subprocess.run(
        [BIN / words[0], *words[1:]], cwd=controller.directory, env=environment, capture_output=True, text=True
    )


def test_lua_sees_changes_and_refuses_submissions_in_slurms_words(make: Make) -> None:
    controller = make("JobSubmitPlugins=lua", lua=LUA)
    told = command(controller, "sbatch", "-J", "told", "--wrap", "true")
    assert (told.stdout, told.stderr) == ("Submitted batch job 1\n", "sbatch: hello 3\nsbatch: second\n")
    no = command(controller, "sbatch", "-J", "no", "--wrap", "true")
    assert no.stderr == (
        "sbatch: error: bad\nsbatch: error: lines\nsbatch: error: Batch job submission failed: Unspecified error\n"
    )
    limit = command(controller, "salloc", "-J", "limit", "true")
    assert limit.stderr == (
        "salloc: error: why\n"
        "salloc: error: Job submit/allocate failed: Time limit specification required, but not provided\n"
    )
    trial = command(controller, "sbatch", "--test-only", "-J", "limit", "--wrap", "true")
    assert trial.stderr == (
        "sbatch: error: why\nallocation failure: Time limit specification required, but not provided\n"
    )
    assert refused(controller, "part") == ("ESLURM_INVALID_PARTITION_NAME", ("invalid partition specified: nope",))
    given = job(controller, submit(controller, "give").job_id)
    assert (given.spec.admin_comment, given.spec.nice, given.spec.comment) == ("given", -3, "c")
    with controller.connect() as connection:
        assert connection.call(GetScript(job_id=given.id), Script).script == b"#!/bin/sh\necho changed\n"
        with pytest.raises(RemoteError):
            connection.call(SubmitJob(spec=JobSpec(name="limit"), test_only=True), WillRun)
    assert submit(controller, "jobs").messages == ("2",)
    # What was queued is what the plugin made of it, whatever becomes of the plugin.
    controller.kill()
    os.unlink(controller.directory / "job_submit.lua")
    controller.write_conf()
    controller.start()
    assert job(controller, given.id).spec == given.spec


def test_lua_sees_updates_holds_and_releases(make: Make) -> None:
    controller = make("JobSubmitPlugins=lua", lua=LUA)
    number = submit(controller).job_id
    target = JobTarget(number)
    with controller.connect() as connection:
        with pytest.raises(RemoteError) as caught:
            connection.call(UpdateJob(target=target, changes={"comment": "deny"}), Done)
        assert (caught.value.code, caught.value.details) == ("ESLURM_ACCESS_DENIED", ("no way",))
        assert connection.call(UpdateJob(target=target, changes={"comment": "say"}), Done).told == ("done so",)
        assert job(controller, number).spec.comment == "job!"
        assert connection.call(HoldJob(target=target), Done).told == ("held",)
        held = job(controller, number)
        assert (held.hold.value != "", held.spec.comment) == (True, "by hand")
        connection.call(ReleaseJob(target=target), Done)
    assert job(controller, number).hold.value == ""
    shown = command(controller, "scontrol", "update", f"jobid={number}", "comment=deny")
    assert shown.returncode == 1
    assert shown.stderr == f"scontrol: error: no way\nAccess/permission denied for job {number}\n"


def test_a_script_that_hangs_or_kills_its_process_fails_one_job_and_the_controller_goes_on(make: Make) -> None:
    controller = make("JobSubmitPlugins=lua\nMessageTimeout=2", lua=LUA)
    for name in ("loop", "program"):
        code, lines = refused(controller, name)
        assert (code, len(lines)) == ("SLURM_ERROR", 1)
        assert lines[0].endswith("job_submit.lua: not done in 1.6 seconds")
    assert submit(controller, "told").messages == ("hello 3", "second")
    assert refused(controller, "end")[1][0].endswith("its process ended")
    assert submit(controller).job_id
    with controller.connect() as waiting, controller.connect() as other:
        waiting.send(a_job("loop"))
        # Only submissions that pass through the script wait for it.
        for _ in range(20):
            assert list(other.stream(ListJobs(all=True), Jobs))


@pytest.mark.slow
def test_a_job_whose_caller_has_gone_before_its_turn_is_not_queued(make: Make) -> None:
    controller = make("JobSubmitPlugins=lua\nMessageTimeout=2", lua=LUA)
    with controller.connect() as slow:
        slow.call(Statistics(), Counters)  # from now on the user is known, and nothing is looked up first
        for _ in range(10):  # more than the script's process is given ahead
            slow.send(a_job("loop"))
        with controller.connect() as gone:
            gone.send(a_job("told"))
        until(lambda: "the request is gone" in controller.log, "its turn has come")
        with controller.connect() as other:
            assert [one for piece in other.stream(ListJobs(all=True), Jobs) for one in piece.jobs] == []


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs to be another user")
def test_plugins_give_what_a_user_may_not_take(make: Make) -> None:
    controller = make("JobSubmitPlugins=lua", lua=LUA)

    def ask() -> None:
        with controller.connect() as connection:
            print(connection.call(a_job("give", admin_comment="mine"), JobSubmitted).job_id)
            print(connection.call(a_job("job", admin_comment="mine"), JobSubmitted).job_id)
            for own in ({"priority": 7}, {"gid": 0}):
                try:
                    connection.call(a_job("give", **own), JobSubmitted)
                except RemoteError as error:
                    print(error.code)
            connection.call(a_job("give", nice=-5), JobSubmitted)

    first, second, *refusals, refusal = as_user(NOBODY, ask).splitlines()
    assert refusals == ["ESLURM_ACCESS_DENIED", "ESLURM_GROUP_ID_MISSING"]
    given, own = job(controller, int(first)).spec, job(controller, int(second)).spec
    assert (given.uid, given.priority, given.nice, given.admin_comment) == (NOBODY, 4711, -3, "given")
    assert (own.uid, own.priority, own.nice, own.admin_comment) == (NOBODY, None, 0, "")
    assert refusal == "RemoteError: Invalid --nice value"


def test_plugins_run_in_the_order_of_the_file_and_the_first_refusal_ends_it(make: Make) -> None:
    lua = LUA.replace('if d.name == "part"', 'if d.name == "set" then d.time_limit = 5 end if d.name == "part"')
    controller = make("JobSubmitPlugins=lua,require_timelimit,all_partitions,pbs", lua=lua)
    assert refused(controller, time_limit_minutes=None)[0] == "ESLURM_MISSING_TIME_LIMIT"
    number = submit(controller, "set", time_limit_minutes=None).job_id
    spec = job(controller, number).spec
    assert (spec.time_limit_minutes, spec.comment) == (5, f"stdout=/tmp/slurm-{number}.out")


def test_the_throttle_says_why(make: Make) -> None:
    controller = make("JobSubmitPlugins=throttle\nSchedulerParameters=jobs_per_user_per_hour=2")
    submit(controller)
    submit(controller)
    assert refused(controller) == ("ESLURM_ACCOUNTING_POLICY", ("Reached jobs per hour limit",))
    with controller.connect() as connection:
        connection.call(Reconfigure(), Done)
    assert refused(controller)[0] == "ESLURM_ACCOUNTING_POLICY"


def test_reconfigure_takes_other_plugins_and_keeps_those_it_has_when_they_are_broken(make: Make) -> None:
    controller = make("")
    submit(controller, time_limit_minutes=None)
    script = controller.directory / "job_submit.py"
    script.write_text("def job_submit(job, partitions, uid):\n    raise Refused('python says no')\n")
    controller.write_conf("JobSubmitPlugins=python")

    def reconfigure() -> None:
        with controller.connect() as connection:
            connection.call(Reconfigure(), Done)

    reconfigure()
    assert refused(controller) == ("SLURM_ERROR", ("python says no",))
    (controller.directory / "job_submit.lua").write_text("function (")
    controller.write_conf("JobSubmitPlugins=lua")
    reconfigure()
    assert refused(controller) == ("SLURM_ERROR", ("python says no",))
    until(lambda: "plugins.refused" in controller.log, "the refusal's line")
    controller.write_conf()
    reconfigure()
    assert submit(controller).job_id
    until(lambda: not children(controller), "the process of the script has ended")


def children(controller: ControllerProcess) -> list[str]:
    """Those of the controller's children that run scripts; others of them come and go."""
    assert controller.process is not None
    root = controller.process.pid
    found = []
    for pid in Path(f"/proc/{root}/task/{root}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"plugins.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_a_controller_whose_script_is_broken_does_not_start_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "job_submit.lua").write_text("function slurm_job_submit(")
    controller = ControllerProcess(tmp_path, extra="JobSubmitPlugins=lua")
    done = controller.run("-D", "-f", str(controller.conf))
    assert done.returncode != 0
    assert "job_submit/lua: job_submit.lua:1: " in done.stderr
    controller.write_conf("JobSubmitPlugins=job_submit/luna")
    done = controller.run("-D", "-f", str(controller.conf))
    assert "there is no plugin job_submit/luna" in done.stderr


def test_the_process_of_a_script_ends_with_a_controller_that_is_killed(make: Make) -> None:
    controller = make("JobSubmitPlugins=python", py="def job_submit(job, partitions, uid):\n    while True: pass\n")
    (child,) = children(controller)
    with controller.connect() as connection:
        connection.send(a_job())
        controller.kill()
    until(lambda: not Path(f"/proc/{child}").exists(), "its child has ended")
