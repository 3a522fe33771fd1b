"""Ends of jobs told to a Lua script and to Kafka. Source: slurm.conf(5) JobCompType; fields as in job_submit.lua."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.controller.jobcomp.ended import EndedJob
from spritz.controller.jobcomp.kafka import Topic
from spritz.controller.jobcomp.lua import LuaLog
from spritz.controller.jobcomp.web import document, encode, start_document
from spritz.extras import pip_install
from spritz.model.errors import SpritzError
from spritz.model.states import JobState
from tests.unit.controller.test_jobcomp import ALLOCATION, _Around, an_end

pytest.importorskip("lupa")

_WRITE = """
function slurm_jobcomp_log_record(job)
  local file = io.open("{path}", "a")
  file:write(string.format("%d %s %s %d %d %d %s %s %s\\n", job.job_id, job.name, job.account, job.job_state,
    job.exit_code, job.end_time - job.start_time, job.nodes, tostring(job.nothing), (job.script or ""):gsub("\\n", "")))
  file:close()
  {rest}
end
"""


def called(script: Path, ends: list[EndedJob], calls: int) -> list[tuple[str, str]]:
    """What is logged while a script is called for all of these."""
    logged: list[tuple[str, str]] = []

    async def live() -> None:
        around: Any = _Around(script.parent)
        around.log.error = lambda _, **given: logged.append(("error", str(given.get("text"))))
        around.log.info = lambda _, **given: logged.append(("info", str(given.get("text"))))
        log = LuaLog(around, str(script))
        log.take(ends)
        async with asyncio.timeout(100):
            while len(logged) < calls:  # noqa: ASYNC110 - what threads have done
                await asyncio.sleep(0.005)
        for task in around.running:
            task.cancel()
        await asyncio.gather(*around.running, return_exceptions=True)

    asyncio.run(live())
    return logged


def test_a_lua_script_is_told_of_each_end_with_the_record_as_it_was_then(tmp_path: Path) -> None:
    script = tmp_path / "jobcomp.lua"
    script.write_text(_WRITE.format(path=tmp_path / "told", rest='slurm.log_info("%d", job.job_id)'))
    one = an_end(script_key="k")
    # The record is of the next life of a job that was requeued.
    later = EndedJob(replace(one.job, state=JobState.PENDING, started_at=0.0), one.event, one.started, ALLOCATION)
    assert (
        called(script, [one, later], 4)
        == [
            ("info", "10"),
            ("info", "jobcomp/lua: " + str(script) + ": non-numeric return code"),
        ]
        * 2
    )
    line = "10 na me phys 32773 768 60 n1 nil #!/bin/sh"
    assert (tmp_path / "told").read_text().splitlines() == [line, line]


def test_a_job_that_never_ran_has_no_nodes(tmp_path: Path) -> None:
    script = tmp_path / "jobcomp.lua"
    script.write_text(
        "function slurm_jobcomp_log_record(job) slurm.log_info('%d %d %d %s %s', job.job_state, job.total_cpus, "
        "job.total_nodes, tostring(job.nodes), tostring(job.batch_host)) return 0 end"
    )
    one = an_end()
    never = EndedJob(one.job, replace(one.event, state=JobState.CANCELLED), one.event.at, None)
    assert called(script, [never], 1) == [("info", "4 0 0 nil nil")]


def test_what_a_lua_script_does_wrong_is_logged_and_the_next_end_is_told(tmp_path: Path) -> None:
    script = tmp_path / "jobcomp.lua"
    script.write_text(_WRITE.format(path=tmp_path / "told", rest='if job.name == "bad" then error("oh") end return 3'))
    first, second = called(script, [an_end(name="bad"), an_end()], 2)
    assert first[0] == "error"
    assert first[1].endswith("oh")
    assert second == ("error", "slurm_jobcomp_log_record returned 3")
    assert len((tmp_path / "told").read_text().splitlines()) == 2


@pytest.mark.parametrize("text", [None, "function other() end", "function ("])
def test_a_lua_script_that_cannot_be_loaded_is_refused_at_the_start(tmp_path: Path, text: str | None) -> None:
    script = tmp_path / "jobcomp.lua"
    if text is not None:
        script.write_text(text)
    with pytest.raises(SpritzError, match=r"jobcomp.lua"):
        LuaLog(_Around(tmp_path), str(script))  # type: ignore[arg-type]  # what it needs of one


def test_kafka_without_its_client_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(SpritzError, match="confluent-kafka") as refused:
        Topic(str(tmp_path), (), "real")
    assert refused.value.hint == pip_install("kafka")


def test_a_document_is_sent_when_a_broker_has_it(tmp_path: Path) -> None:
    """librdkafka's own brokers, over TCP, read by another client of it."""
    kafka = pytest.importorskip("confluent_kafka")
    file = tmp_path / "kafka.conf"
    file.write_text("# brokers of the test\ntest.mock.num.brokers=1\nmessage.timeout.ms = 100000\n")
    topic = Topic(str(file), ("topic=jobs", "topic_job_start=begun", "flush_timeout=100000"), "real")
    assert topic.post(encode(document(an_end(), "real"))) == (200, "")
    # What a script says changes nothing.
    assert topic.post(encode(start_document(an_end(), "real", ',"@end":'))) == (200, "")
    assert topic.post(b"x" * 2_000_000)[0] == 413
    brokers = topic._producer.list_topics(timeout=100).brokers.values()
    reader = kafka.Consumer(
        {
            "bootstrap.servers": ",".join(f"{broker.host}:{broker.port}" for broker in brokers),
            "group.id": f"test{os.getpid()}",
            "auto.offset.reset": "earliest",
        }
    )
    found: list[tuple[str, bool]] = []
    for name in ("jobs", "begun"):
        partitions = topic._producer.list_topics(name, timeout=100).topics[name].partitions
        reader.incremental_assign([kafka.TopicPartition(name, number, 0) for number in partitions])
    end = time.monotonic() + 100.0
    while len(found) < 2 and time.monotonic() < end:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.topic(), "state" in json.loads(message.value())))
    reader.close()
    assert sorted(found) == [("begun", False), ("jobs", True)]


def test_a_broker_that_is_away_and_options_that_are_none(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    file = tmp_path / "kafka.conf"
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    status, problem = Topic(str(file), ("flush_timeout=100",), "real").post(b"{}")
    assert status == 0
    assert problem
    for text, words in (("no.such.option=1", "no.such.option"), ("words", "line 1")):
        file.write_text(text)
        with pytest.raises(SpritzError, match=words):
            Topic(str(file), (), "real")
    with pytest.raises(SpritzError, match="JobCompLoc"):
        Topic(str(tmp_path / "missing"), (), "real")
