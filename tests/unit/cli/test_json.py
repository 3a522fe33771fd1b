"""`--json`: the data_parser form that tools read."""

from __future__ import annotations

import io
import json
from typing import Any

import jsonschema
import msgspec
import pytest

from spritz.cli import scontrol, sinfo, squeue
from spritz.cli.administration.control import local
from spritz.cli.call.context import Context
from spritz.model.commands.step import CreateStep
from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import StepSpec
from spritz.model.resources import GresRequest
from spritz.model.states import JobState
from spritz.notation.octets import plain
from spritz.presentation.json import envelope, jobs, ping, pretty
from spritz.presentation.json.documents import VERSIONS, operations
from spritz.presentation.json.envelope import DEFAULT
from spritz.presentation.json.pretty import Printer
from tests.unit.cli.site import Site
from tests.unit.rest.schema import schema_of


def asked(site: Site, main: Any, *words: str) -> Any:
    ran = site.run(main, *words)
    assert (ran.status, ran.err) == (0, "")
    answer = json.loads(ran.out)
    assert answer["errors"] == []
    assert answer["warnings"] == []
    assert answer["meta"]["plugin"]["data_parser"] == "data_parser/v0.0.43"
    assert answer["meta"]["slurm"]["release"] == "25.05.0"
    assert answer["meta"]["slurm"]["version"] == {"major": "25", "minor": "05", "micro": "0"}
    return answer


def test_jobs(site: Site) -> None:
    job = site.running("n1", "n2", name="train", time_limit_minutes=5)
    held = site.submit(hold=True)
    records = {one["job_id"]: one for one in asked(site, squeue.main, "--json")["jobs"]}
    running, pending = records[job], records[held]
    assert running["job_state"] == ["RUNNING"]
    assert running["time_limit"] == {"set": True, "infinite": False, "number": 5}
    assert running["nodes"] == "n[1-2]"
    assert running["start_time"]["number"] == int(site.world.now)
    assert pending["time_limit"]["infinite"] is True
    assert pending["state_reason"] == "JobHeldUser"
    assert pending["hold"] is True
    assert pending["array_task_id"] == {"set": False, "infinite": False, "number": 0}
    assert pending["exit_code"] == {
        "status": ["SUCCESS"],
        "return_code": {"set": True, "infinite": False, "number": 0},
        "signal": {"id": {"set": False, "infinite": False, "number": 0}, "name": ""},
    }


def test_words_of_a_job_are_those_of_the_schema(site: Site) -> None:
    """OpenAPI `job_info` v0.0.43: flags, mail_type, shared."""
    site.submit(hold=True, tasks=2, tasks_given=True, mail_types=("INVALID_DEPEND", "TIME_LIMIT_80", "END"))
    (one,) = asked(site, squeue.main, "--json")["jobs"]
    assert one["mail_type"] == ["INVALID_DEPENDENCY", "TIME=80%", "END"]
    assert "EXACT_TASK_COUNT_REQUESTED" in one["flags"]
    assert "DEPENDENT" not in one["flags"]
    assert one["cluster"] == asked(site, squeue.main, "--json")["meta"]["slurm"]["cluster"]


def test_filters_hold(site: Site) -> None:
    job = site.submit(hold=True)
    site.submit(hold=True, name="other")
    assert [one["name"] for one in asked(site, squeue.main, "--json", "-n", "other")["jobs"]] == ["other"]
    (one,) = asked(site, scontrol.main, "--json", "show", "job", str(job))["jobs"]
    assert one["job_id"] == job


def test_nodes_partitions_and_ping(site: Site) -> None:
    site.running("n1")
    nodes = {one["name"]: one for one in asked(site, scontrol.main, "show", "nodes", "--json")["nodes"]}
    assert (nodes["n1"]["state"], nodes["n1"]["alloc_cpus"], nodes["n2"]["state"]) == (["MIXED"], 1, ["IDLE"])
    assert nodes["n1"]["free_mem"]["number"] == 5000
    assert nodes["n2"]["free_mem"]["set"] is False
    (partition,) = asked(site, scontrol.main, "show", "partition", "--json")["partitions"]
    assert (partition["name"], partition["partition"]["state"], partition["nodes"]["total"]) == ("debug", ["UP"], 4)
    (ping,) = asked(site, scontrol.main, "ping", "--json")["pings"]
    assert (ping["hostname"], ping["pinged"]) == ("here", "UP")


@pytest.mark.parametrize("entity", ["config", "topology", "hostnames", "daemons"])
def test_what_has_no_form_in_json_is_refused_by_name(site: Site, entity: str) -> None:
    ran = site.run(scontrol.main, "show", entity, "--json")
    assert (ran.status, ran.out) == (1, "")
    assert f"--json is not supported by Spritz for show {entity}" in ran.err


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--json", ("version",)),
        ("--json", ("completing",)),
        ("--json", ("getaddrs", "n1")),
        ("--yaml", ("pidinfo", "1")),
        ("--json", ("getent",)),
        ("--json", ("errnumstr", "1")),
        ("--json", ("token",)),
        ("--json", ("help",)),
    ],
)
def test_keywords_that_print_only_text_are_refused_by_name(site: Site, option: str, words: tuple[str, ...]) -> None:
    ran = site.run(scontrol.main, option, *words)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"scontrol: error: {option} is not supported by Spritz for {words[0]}\n"


def test_steps(site: Site) -> None:
    """The keys of `STEP_INFO` of Slurm's data_parser."""
    job = site.running("n1", "n2")
    spec = StepSpec(name="train", tasks=2, argv=("a",), stdout="%x-%j.%s-%t", distribution="plane=1", client_pid=7)
    site.world.ok(CreateStep(job_id=job, spec=spec))
    (batch, *_), (step,) = _split(asked(site, scontrol.main, "--json", "show", "step")["steps"])
    assert batch == f"{job}.batch"
    assert step["id"] == f"{job}.0"
    assert (step["name"], step["nodes"], step["number_tasks"], step["state"]) == ("train", "n[1-2]", 2, ["RUNNING"])
    assert step["task"] == {"distribution": "plane=1"}
    assert step["array"] == {"job_id": 0, "task_id": 4294967294}
    assert step["time"]["limit"] == {"set": True, "infinite": True, "number": 0}
    assert (step["stdout"], step["stdout_expanded"]) == ("%x-%j.%s-%t", f"job-{job}.0-%t")
    assert step["srun"]["pid"] == 7
    (only,) = asked(site, scontrol.main, "--json", "show", "step", f"{job}.0")["steps"]
    assert only == step
    (old,) = json.loads(site.run(scontrol.main, "--json=v0.0.42", "show", "step", f"{job}.0").out)["steps"]
    files = {"stdin", "stdout", "stderr"}
    assert step.keys() - old.keys() == files | {f"{name}_expanded" for name in files}


def _split(steps: list[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Ids of batch scripts and the like, and other steps."""
    proper = [step for step in steps if step["id"].rpartition(".")[2].isdecimal()]
    return [step["id"] for step in steps if step not in proper], proper


def test_no_steps_are_an_empty_list(site: Site) -> None:
    assert asked(site, scontrol.main, "--json", "show", "step")["steps"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_databases_that_answer(version: str) -> None:
    """The answer of `GET /slurmdb/ping`, in each version."""
    out = io.StringIO()
    here = Context("sacctmgr", {}, "/", io.StringIO(), out, io.StringIO())
    ping.show_databases(here, version, {"a": False, "b": True}, 12)
    answer = json.loads(out.getvalue())
    pings = answer["pings"]
    assert [(one["hostname"], one["responding"], one["primary"]) for one in pings] == [
        ("a", False, True),
        ("b", True, False),
    ]
    schema = next(one.answer for one in operations(version) if one.key == "GET /slurmdb/ping")
    jsonschema.validate(answer, schema_of(version, schema))


def test_licenses(site: Site) -> None:
    assert asked(site, scontrol.main, "--json", "show", "licenses")["licenses"] == []


def test_processes_on_this_machine(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    task = {**variables, "SLURM_STEP_ID": "0", "SLURM_LOCALID": "0", "SLURM_PROCID": "3"}
    there = [local.Process(11, variables), local.Process(12, task), local.Process(13, {**task, "SLURM_JOB_ID": "8"})]
    monkeypatch.setattr(local, "processes", lambda: iter(there))
    assert asked(site, scontrol.main, "listjobs", "--json")["jobs"] == [{"job_id": 7}, {"job_id": 8}]
    steps = asked(site, scontrol.main, "liststeps", "n1", "--json")["steps"]
    assert steps == [{"job_id": 7, "step_id": "0"}, {"job_id": 7, "step_id": "batch"}, {"job_id": 8, "step_id": "0"}]
    batch, first = asked(site, scontrol.main, "listpids", "7", "--json")["pids"]
    assert (batch["pid"], batch["local_task_id"]["set"], batch["step_id"]) == (11, False, "batch")
    assert first == {
        "global_task_id": {"set": True, "infinite": False, "number": 3},
        "local_task_id": {"set": True, "infinite": False, "number": 0},
        "job_id": 7,
        "pid": 12,
        "step_id": "0",
    }
    assert site.run(scontrol.main, "listpids", "9").err == "There are no steps for job 9 on node (null).\n"
    assert site.run(scontrol.main, "listpids", "9.0", "n2").err == "StepId=9.0 does not exist on node n2.\n"
    assert site.run(scontrol.main, "listpids", "7.0").lines[1].split() == ["12", "7", "0", "0", "3"]


def test_a_machine_without_steps(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "processes", lambda: iter(()))
    assert asked(site, scontrol.main, "listjobs", "--json")["jobs"] == []
    ran = site.run(scontrol.main, "listpids", "--json")
    assert (ran.status, json.loads(ran.out)["pids"]) == (1, [])
    for verb in ("listjobs", "liststeps"):
        ran = site.run(scontrol.main, verb)
        assert (ran.status, ran.out, ran.err) == (1, "", "No slurmstepd's found on this node\n")
    ran = site.run(scontrol.main, "listpids")
    assert (ran.status, ran.out, ran.err) == (1, "", "No job steps exist on this node.\n")
    assert site.run(scontrol.main, "listpids", "9").err == "JobId=9 does not exist on node (null).\n"


def test_sinfo_groups(site: Site) -> None:
    site.running("n1")
    groups = asked(site, sinfo.main, "--json")["sinfo"]
    assert sorted((group["node"]["state"], group["nodes"]["total"]) for group in groups) == [
        (["IDLE"], 3),
        (["MIXED"], 1),
    ]
    assert groups[0]["partition"]["name"] == "debug"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("words", "operation"),
    [
        (("show", "job"), "GET /slurm/jobs"),
        (("show", "node"), "GET /slurm/nodes"),
        (("show", "partition"), "GET /slurm/partitions"),
        (("show", "reservation"), "GET /slurm/reservations"),
        (("ping",), "GET /slurm/ping"),
    ],
)
def test_every_version_is_what_its_document_says(
    site: Site, version: str, words: tuple[str, ...], operation: str
) -> None:
    site.submit(hold=True)
    ran = site.run(scontrol.main, f"--json={version}", *words)
    assert (ran.status, ran.err) == (0, "")
    answer = json.loads(ran.out)
    assert answer["meta"]["plugin"]["data_parser"] == f"data_parser/{version}"
    if version != DEFAULT:  # which keeps a key or two that its document has not
        schema = next(one.answer for one in operations(version) if one.key == operation)
        jsonschema.validate(answer, schema_of(version, schema))


def test_the_configured_version_is_used_where_none_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "data_parser", lambda: "v0.0.45")
    ran = site.run(squeue.main, "--json")
    assert json.loads(ran.out)["meta"]["plugin"]["data_parser"] == "data_parser/v0.0.45"
    monkeypatch.setattr(envelope, "data_parser", lambda: "v0.0.45+complex")
    ran = site.run(squeue.main, "--json")
    assert (ran.status, "DataParserParameters=v0.0.45+complex is not supported by Spritz" in ran.err) == (1, True)


def test_another_version_is_refused_and_they_can_be_listed(site: Site) -> None:
    ran = site.run(squeue.main, "--json=v0.0.37")
    assert (ran.status, ran.out) == (1, "")
    assert "--json=v0.0.37 is not supported by Spritz" in ran.err
    assert "data_parser/v0.0.43" in site.run(squeue.main, "--json=list").lines


def test_names_that_are_not_utf8_make_valid_json(site: Site) -> None:
    site.submit(hold=True, name=plain("a\udcff"))
    [job] = asked(site, squeue.main, "--json")["jobs"]
    assert job["name"] == "a\udcff"


def test_records_made_in_one_pass_are_what_the_whole_answer_would_be(site: Site) -> None:
    """Byte for byte, and types are kept apart that Python takes for equal: every value of a key has one type."""
    site.running("n1", "n2", name='quo"te\\ \u00e9', time_limit_minutes=5, tasks=3)
    site.submit(hold=True, requeue=False, mail_types=("END", "FAIL"), mail_user="m")
    site.submit(batch=False, interactive=True, cpus_per_task=2)
    ended = site.running("n3")
    site.world.finished(ended, status=9 << 8)
    cluster = asked(site, squeue.main, "--json")["meta"]["slurm"]["cluster"]
    now, known = site.world.now, site.world.state.jobs.values()
    records = [dict(sorted(jobs.job_json(job, now, cluster).items())) for job in known]
    for record in records:
        assert [type(value) for value in record.values()] == [type(value) for value in records[0].values()]
    out = site.run(squeue.main, "--json", "-t", "all").out
    whole = json.loads(out)
    whole["jobs"] = records
    assert out == msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"
    assert site.run(squeue.main, "--json", "-n", "nobody").out.startswith('{\n  "jobs": [],\n  "last_backfill": {')


def test_a_printer_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretty, "_KEPT_MAX", 2)
    printer = Printer(("n",))
    texts = [pretty.record_of(printer.lines((number,))) for number in (1, 2, 3, 1)]
    assert texts == [f'    {{\n      "n": {number}\n    }}' for number in (1, 2, 3, 1)]


class _Watched:
    """A record that notes which of its fields are looked at."""

    def __init__(self, record: object, seen: set[str]) -> None:
        self._record = record
        self._seen = seen

    def __getattr__(self, name: str) -> object:
        self._seen.add(name)
        return getattr(self._record, name)


def test_what_is_worked_out_once_for_a_kind_of_request_depends_on_nothing_else() -> None:
    requests = (
        JobSpec(),
        JobSpec(gpus=(GresRequest(name="gpu", count=2),), cpus_per_gpu=2, memory_mib_per_gpu=5),
        JobSpec(overcommit=True, memory_mib_per_cpu=3, tasks_per_node=2),
        JobSpec(gpus_per_task=(GresRequest(name="gpu", count=1),), tasks=3),
        JobSpec(gpus_per_node=(GresRequest(name="gpu", count=1),)),
        JobSpec(gpus_per_socket=(GresRequest(name="gpu", count=1),)),
    )
    for spec in requests:
        for state in JobState:
            of_spec: set[str] = set()
            of_job: set[str] = set()
            job = _Watched(Job(id=1, spec=spec, state=state), of_job)
            job.spec = _Watched(spec, of_spec)  # type: ignore[attr-defined]  # in place of the record's own
            jobs._size(job)  # type: ignore[arg-type]  # it stands for one
            jobs._request(job)  # type: ignore[arg-type]
            assert not of_spec & jobs.DIFFERENT
            assert of_job <= {"allocation", "state", "billing", "expected_start_at", "expected_nodes", "reservation"}
