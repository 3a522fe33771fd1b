"""`--json`: the data_parser form that tools read."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from spritz.cli import scontrol, sinfo, squeue
from spritz.model.job.record import Job, JobSpec
from spritz.model.resources import GresRequest
from spritz.model.states import JobState
from spritz.notation.octets import plain
from spritz.presentation.json import envelope, jobs, pretty
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


@pytest.mark.parametrize("entity", ["steps", "config", "licenses", "hostnames", "daemons"])
def test_what_has_no_form_in_json_is_refused_by_name(site: Site, entity: str) -> None:
    ran = site.run(scontrol.main, "show", entity, "--json")
    assert (ran.status, ran.out) == (1, "")
    assert f"--json is not supported by Spritz for show {entity}" in ran.err


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
    assert site.run(scontrol.main, "--json", "show", "step").status == 1


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
