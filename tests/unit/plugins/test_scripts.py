"""job_submit.lua and job_submit.py: what they see, what they may change, how they fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.model.job.record import Job, JobSpec
from spritz.model.node.partition import Partition
from spritz.model.node.reservation import Reservation
from spritz.plugins.answer import PluginError
from spritz.plugins.description import Description
from spritz.plugins.lua_submit import LuaSubmit
from spritz.plugins.python import PythonSubmit
from spritz.plugins.script import ScriptContext

PARTITIONS = (Partition(name="a", nodes=("n1", "n2")), Partition(name="b", root_only=True))
JOBS = (Job(id=3, spec=JobSpec(name="other", uid=7)), Job(id=4, spec=JobSpec(name="mine", uid=1000)))
RESERVATIONS = (Reservation(name="r", id=1, start_at=0.0, end_at=600.0, users=("u",), nodes=("n1",)),)


def context(job: Job | None = None) -> ScriptContext:
    return ScriptContext(1000, 1000, (), PARTITIONS, (8, 8), job, lambda: JOBS, lambda: RESERVATIONS)


def described(**fields: object) -> Description:
    spec = JobSpec(**{"uid": 1000, "user": "u", **fields})  # type: ignore[arg-type]  # by name
    return Description.of_spec(spec, b"#!/bin/sh\n", (b"A=b",), {"default_account": "acc"})


def lua(tmp_path: Path, body: str, modify: str = "return 0") -> LuaSubmit:
    path = tmp_path / "job_submit.lua"
    path.write_text(
        f"function slurm_job_submit(d, parts, uid)\n{body}\nend\n"
        f"function slurm_job_modify(d, rec, parts, uid)\n{modify}\nend\n"
    )
    script = LuaSubmit(str(path), "c1")
    script.load()
    return script


def test_lua_sees_the_request_the_partitions_and_the_cluster(tmp_path: Path) -> None:
    script = lua(
        tmp_path,
        """
        local names = {}
        for name, part in pairs(parts) do names[#names + 1] = name .. "=" .. part.total_cpus .. part.nodes end
        slurm.log_user("%s %d %s %s", table.concat(names, ","), uid, d.user_name, d.default_account)
        slurm.user_msg(slurm.CLUSTER_NAME .. " " .. tostring(d.time_limit == slurm.NO_VAL))
        local jobs = 0
        for id, job in pairs(slurm.jobs) do jobs = jobs + 1 end
        slurm.user_msg(jobs .. slurm.jobs["3"].name .. tostring(slurm.jobs["9"]) .. slurm.reservations.r.node_list)
        slurm.log_info("argv %s of %d", d.argv[0], d.argc)
        return slurm.SUCCESS""",
    )
    answer = script.submit(described(command="/w/j.sh x", arguments=("x",)), context())
    assert answer.lines == ("a=8n[1-2] 1000 u acc", "c1 true", "2othernilr".replace("nilr", "niln1"))
    assert (answer.number, answer.log) == (0, (("info", "argv /w/j.sh of 2"),))


def test_lua_changes_the_request(tmp_path: Path) -> None:
    script = lua(
        tmp_path,
        """
        d.partition = "b"; d.time_limit = 254; d.environment.NEW = d.environment.A .. "c"
        d.script = d.script .. "echo\\n"; d.nice = slurm.NICE_OFFSET - 7; d.admin_comment = "x"
        d.comment = "\\255" """,
    )
    job = described()
    answer = script.submit(job, context())
    spec = job.spec()
    assert (spec.partitions, spec.time_limit_minutes, spec.nice) == (("b",), 254, -7)
    assert (job.environment, job.script) == ([b"A=b", b"NEW=bc"], b"#!/bin/sh\necho\n")
    assert len(spec.comment) == 1
    assert answer.log[0][1].endswith("non-numeric return code")
    assert {"admin_comment", "nice"} <= job.changed


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("local x = nil; return x.y", "2: attempt to index a nil value (local 'x')"),
        ("d.frobnicate = 3", '2: a job description has no field "frobnicate"'),
        ("d.account = nil", "2: account: string expected, got nil"),
        ("d.time_limit = 'abc'", "2: time_limit: number expected, got string"),
        ("d.burst_buffer = 'x'", "2: burst_buffer: there are no burst buffers"),
        ("parts.a.nodes = 'x'", "2: this record cannot be changed"),
        ("error({})", None),
    ],
)
def test_a_script_that_fails_fails_the_job_and_says_where(tmp_path: Path, body: str, problem: str | None) -> None:
    answer = lua(tmp_path, body).submit(described(), context())
    assert answer.number == -1
    if problem is not None:
        assert answer.lines == (f"job_submit/lua: job_submit.lua:{problem}",)


def test_lua_sees_an_update_and_the_job_that_it_is_of(tmp_path: Path) -> None:
    script = lua(
        tmp_path,
        "",
        "slurm.user_msg(rec.job_id .. rec.name .. rec.job_state .. d.comment .. tostring(d.qos)); d.comment = 'new'",
    )
    job = Description({"comment": "old"}, job_id=4)
    answer = script.modify(job, context(JOBS[1]))
    assert (answer.lines, job.fields) == (("4mine0oldnil",), {"comment": "new"})


def test_a_changed_script_is_read_and_a_broken_one_leaves_the_one_before(tmp_path: Path) -> None:
    script = lua(tmp_path, "return 1")
    path = tmp_path / "job_submit.lua"
    path.write_text(path.read_text().replace("return 1", "return 2, 3"))
    assert script.submit(described(), context()).number == 2
    path.write_text("function slurm_job_submit(")
    answer = script.submit(described(), context())
    assert answer.number == 2
    assert answer.log[0][0] == "error"
    assert answer.log[0][1].endswith("using previous script")
    os.unlink(path)
    assert script.submit(described(), context()).number == 2


def test_a_script_that_cannot_be_used_at_first_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job_submit.lua"
    with pytest.raises(PluginError, match="Unable to stat"):
        LuaSubmit(str(path)).load()
    path.write_text("function slurm_job_submit() end")
    with pytest.raises(PluginError, match="missing required function slurm_job_modify"):
        LuaSubmit(str(path)).load()


def test_scripts_made_for_an_older_lua_find_what_they_know(tmp_path: Path) -> None:
    script = lua(tmp_path, "slurm.log_debug(string.format(unpack({'%s', 'x'}))); return slurm.time_str2mins('1-2:03')")
    answer = script.submit(described(), context())
    assert (answer.number, answer.log) == (1563, (("debug", "x"),))


# -- Python


def python(tmp_path: Path, text: str) -> PythonSubmit:
    path = tmp_path / "job_submit.py"
    path.write_text(text)
    script = PythonSubmit(str(path), "c1")
    script.load()
    return script


def test_python_sees_and_changes_the_same_names(tmp_path: Path) -> None:
    script = python(
        tmp_path,
        """
def job_submit(job, partitions, submit_uid):
    assert job.time_limit is None and job.partition is None and job.shared is None
    message(f"{sorted(partitions)} {partitions['a'].total_cpus} {submit_uid} {CLUSTER_NAME}")
    message(f"{len(jobs())} {jobs()[3].name} {reservations()['r'].users}")
    job.time_limit = 254
    job.partition = ["a", "b"]
    job.environment["NEW"] = job.environment["A"] + "c"
    del job.environment["A"]
    job.qos = None
    log("seen", "debug")
""",
    )
    job = described(qos="q")
    answer = script.submit(job, context())
    assert (answer.number, answer.lines) == (0, ("['a'] 8 1000 c1", "2 other u"))
    spec = job.spec()
    assert (spec.time_limit_minutes, spec.partitions, spec.qos) == (254, ("a", "b"), "")
    assert (job.environment, answer.log) == ([b"NEW=bc"], (("debug", "seen"),))


def test_python_refuses_and_fails(tmp_path: Path) -> None:
    script = python(
        tmp_path,
        """
def job_submit(job, partitions, submit_uid):
    if job.name == "limit":
        raise Refused("say how long", code="ESLURM_MISSING_TIME_LIMIT")
    if job.name == "number":
        return ESLURM_ACCESS_DENIED
    job.frobnicate
def job_modify(job, record, partitions, submit_uid):
    job.comment = record.name + job.comment
""",
    )
    refused = script.submit(described(name="limit"), context())
    assert (refused.number, refused.lines) == (8000, ("say how long",))
    assert script.submit(described(name="number"), context()).number == 2002
    failed = script.submit(described(), context())
    where = f"job_submit/python: {tmp_path}/job_submit.py:7: AttributeError: "
    assert (failed.number, failed.lines) == (-1, (f'{where}a job description has no field "frobnicate"',))
    change = Description({"comment": "x"}, job_id=4)
    script.modify(change, context(JOBS[1]))
    assert change.fields == {"comment": "minex"}


def test_a_python_script_may_have_one_hook_alone_and_must_be_python(tmp_path: Path) -> None:
    assert python(tmp_path, "x = 1").submit(described(), context()).number == 0
    with pytest.raises(PluginError, match=r"job_submit.py:1: "):
        python(tmp_path, "def (")
