"""`GET /spritz/v1/events` and `scontrol events` before a real cluster: what is told, to whom, and from where on."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from spritz.http.rest import Rest, RestError
from spritz.http.stream import Bookmark, Event
from tests.e2e.cluster import until
from tests.e2e.rest_site import BIN, Site, site, token

__all__ = ["site"]

PATH = "/spritz/v1/events"


class Frames:
    """Frames of a stream, as a browser's EventSource reads them."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        self.last_id = ""
        self.comments = 0
        self._lines = answer.iter_lines()

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        name, data = "", ""
        for line in self._lines:
            field, _, value = line.partition(": ")
            if field == "id":
                self.last_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data = value
            elif line.startswith(":"):
                self.comments += 1
                yield "", {}
            elif not line and data:
                yield name, json.loads(data)
                name = data = ""


@contextmanager
def reading(site: Site, query: str = "", **headers: str) -> Iterator[Frames]:
    """A reader with slurmrestd's own rights."""
    with site.client() as client, client.stream("GET", f"{PATH}?{query}", headers=headers, timeout=30) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Frames(answer)


def kinds_until_end(frames: Frames, job: int) -> list[tuple[int, str]]:
    """Numbers and kinds of the changes that are about the job, up to its end."""
    found = []
    for _, body in frames:
        if body.get("job_id") == job:
            found.append((body["sequence"], body["kind"]))
            if body["kind"] == "JobEnded":
                return found
    raise AssertionError(f"the stream has ended after {found}")


def test_a_job_is_told_from_submission_to_end_and_a_reader_resumes_anywhere_in_between(site: Site) -> None:
    with reading(site, "types=job,step") as frames:
        name, hello = next(iter(frames))
        assert name == "hello"
        job = site.submit(name="told", tasks=1)
        live = kinds_until_end(frames, job)
    kinds = [kind for _, kind in live]
    assert (kinds[0], kinds[-1]) == ("JobQueued", "JobEnded")
    assert "JobStarted" in kinds
    for number, _ in [(hello["sequence"], ""), *live[:-1]]:
        with reading(site, f"job_id={job}", **{"Last-Event-ID": str(number)}) as frames:
            assert kinds_until_end(frames, job) == [one for one in live if one[0] > number]
    with reading(site, f"since=0&job_id={job}&follow=no") as frames:
        told = [(name, body) for name, body in frames if name in ("job", "step")]
    assert [body["kind"] for _, body in told][: len(kinds)] == kinds, "from the journal, from the beginning"
    assert {body["step"] for name, body in told if name == "step"} == {"batch"}


def test_tokens_identify_the_reader_and_bad_requests_are_refused(site: Site) -> None:
    with site.tcp() as client:
        assert client.get(PATH).status_code == 401
    with site.tcp(**{"X-SLURM-USER-TOKEN": token() + "x"}) as client:
        assert client.get(PATH).status_code == 401
    with site.tcp(**{"X-SLURM-USER-TOKEN": token()}) as client:
        with client.stream("GET", PATH) as answer:
            assert next(iter(Frames(answer)))[0] == "hello"
        assert client.post(PATH).status_code == 405
        for query in ("types=jobs", "since=x", "since=-1", "heartbeat=0", "job_id=1,", "follow=maybe", "more=1"):
            answer = client.get(f"{PATH}?{query}")
            assert answer.status_code == 422, query
            assert answer.json()["errors"][0]["description"]


@pytest.mark.slow
def test_a_quiet_stream_has_heartbeats_that_move_the_place(site: Site) -> None:
    with reading(site, "types=reservation&heartbeat=1") as frames:
        stream = iter(frames)
        _, hello = next(stream)
        job = site.submit(tasks=1)
        until(lambda: "COMPLETED" in site.ask("GET", f"/slurm/v0.0.45/job/{job}")["jobs"][0]["job_state"], "it ends")
        for name, _ in stream:
            assert name == "", "nothing but comments"
            if int(frames.last_id or 0) > hello["sequence"]:
                break


def test_a_number_of_another_journal_is_answered_by_a_reset(site: Site) -> None:
    with reading(site, "since=999999999") as frames:
        names = []
        for name, _ in frames:
            names.append(name)
            if name == "reset":
                break
    assert names == ["hello", "reset"]


@pytest.mark.slow
def test_events_go_on_over_a_restart_of_the_controller_without_loss(site: Site) -> None:
    with reading(site, "types=job&heartbeat=1") as frames:
        stream = iter(frames)
        next(stream)
        before = site.submit(name="before", hold=True)
        site.restart_controller()
        after = site.submit(name="after", hold=True)
        queued = []
        for _, body in stream:
            if body.get("kind") == "JobQueued":
                queued.append(body["job_id"])
                if body["job_id"] == after:
                    break
    assert queued == [before, after]
    for job in queued:
        site.ask("DELETE", f"/slurm/v0.0.45/job/{job}")


@pytest.mark.slow
def test_our_own_client_loses_and_doubles_nothing_while_slurmrestd_ends_and_starts_again(site: Site) -> None:
    """It ends in order, and by being killed in the middle of the stream."""

    async def follow(work: asyncio.Queue[Event], bookmark: Bookmark) -> None:
        client = Rest(f"unix:{site.socket}")
        try:
            while True:
                with suppress(RestError):
                    async with client.events(bookmark, ("job",)) as events:
                        async for event in events:
                            work.put_nowait(event)
                await asyncio.sleep(0.05)  # slurmrestd is away
        finally:
            await client.close()

    async def use() -> None:
        told: asyncio.Queue[Event] = asyncio.Queue()
        following = asyncio.create_task(follow(told, Bookmark()))
        assert (await told.get()).type == "hello"
        found: list[int] = []
        jobs: list[int] = []

        async def ended() -> None:
            """Takes events until all jobs have ended."""
            left = set(jobs)
            while left:
                event = await told.get()
                if event.type == "job":
                    found.append(event.sequence)
                    if event.body["kind"] == "JobEnded":
                        left.discard(event.body["job_id"])

        for number in (signal.SIGTERM, signal.SIGKILL):
            jobs[:] = [await asyncio.to_thread(site.submit, tasks=1) for _ in range(3)]
            await asyncio.to_thread(site.end_rest, number)
            # One job that nobody tells of while slurmrestd is away.
            command = [str(BIN / "sbatch"), "--parsable", "--output=/dev/null", "--wrap=true"]
            process = await asyncio.create_subprocess_exec(*command, env=site.env, stdout=subprocess.PIPE)
            done, _ = await process.communicate()
            await asyncio.to_thread(site.start_rest)
            jobs.extend([int(done), await asyncio.to_thread(site.submit, tasks=1)])
            async with asyncio.timeout(100):
                await ended()
        following.cancel()
        with (
            site.client() as client,
            client.stream("GET", f"{PATH}?since={found[0] - 1}&types=job&follow=no") as answer,
        ):
            whole = [body["sequence"] for name, body in Frames(answer) if name == "job"]
        assert found == whole[: len(found)]

    asyncio.run(use())


def test_private_jobs_are_told_to_their_owners_alone(site: Site) -> None:
    with site.tcp(**{"X-SLURM-USER-TOKEN": token("nobody")}) as early:
        with early.stream("GET", f"{PATH}?heartbeat=300") as answer:
            told_early = iter(Frames(answer))
            assert next(told_early)[0] == "hello"
            site.configure("PrivateData=jobs,nodes,reservations")
            # Who may see what is another now: the stream ends, and its reader comes again.
            hidden = site.submit(name="hidden", hold=True)
            assert not [body for _, body in told_early if body.get("job_id") == hidden]
            site.ask("DELETE", f"/slurm/v0.0.45/job/{hidden}")
    try:
        mine = site.submit(name="mine", hold=True)
        with site.tcp(**{"X-SLURM-USER-TOKEN": token("nobody")}) as client:
            with client.stream("GET", f"{PATH}?since=0&follow=no") as answer:
                told = [body for name, body in Frames(answer)]
        assert not [body for body in told if body.get("job_id") or body.get("type") == "node"], told
        with reading(site, f"since=0&follow=no&job_id={mine}") as frames:
            assert "JobQueued" in [body.get("kind") for _, body in frames]
        site.ask("DELETE", f"/slurm/v0.0.45/job/{mine}")
    finally:
        site.configure("PrivateData=none")


def test_scontrol_prints_the_same(site: Site) -> None:
    scontrol = [str(BIN / "scontrol")]
    follow = [*scontrol, "-o", "events", "types=job", "since=0"]
    with subprocess.Popen(follow, env=site.env, stdout=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(30, process.kill)
        timer.start()
        job = site.submit(name="printed", hold=True)
        assert process.stdout is not None
        queued = (change for change in map(json.loads, process.stdout) if change["kind"] == "JobQueued")
        assert next(change["name"] for change in queued if change["job_id"] == job) == "printed"
        process.terminate()
        timer.cancel()
    told = subprocess.run(
        [*scontrol, "events", "follow=no", f"job={job}"], env=site.env, capture_output=True, text=True, timeout=60
    )
    assert "job JobQueued job_id=" in told.stdout, told.stderr
    assert "name=printed" in told.stdout
    wrong = subprocess.run([*scontrol, "events", "types=x"], env=site.env, capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 1
    assert "types=job" in wrong.stderr


def test_pages_get_jobs_nodes_and_explanations_in_rows_of_their_own(site: Site) -> None:
    job = site.submit(name="<b>shown</b>", tasks=1, hold=True)
    with site.client() as client:
        answer = client.get("/spritz/v1/jobs")
        found = answer.json()
        rows = [dict(zip(found["fields"], row, strict=True)) for row in found["rows"]]
        mine = next(row for row in rows if row["id"] == job)
        assert (mine["name"], mine["state"], mine["reason"]) == ("<b>shown</b>", "PENDING", "JobHeldUser")

        def unchanged() -> bool:
            """Jobs of other tests may be ending."""
            etag = client.get("/spritz/v1/jobs").headers["etag"]
            return client.get("/spritz/v1/jobs", headers={"If-None-Match": etag}).status_code == 304

        until(unchanged, "what has not changed is not sent again")
        named = client.get(f"/spritz/v1/jobs?fields=id,expected_start_at&ids={job},99999&states=pending").json()
        assert named["rows"] == [[job, 0.0]]
        nodes = client.get("/spritz/v1/nodes").json()["nodes"]
        assert [(node["cpus"], node["jobs"]) for node in nodes] == [(4, []), (4, [])]
        assert client.get(f"/spritz/v1/nodes?names={nodes[0]['name']}").json()["nodes"][0]["name"] == nodes[0]["name"]
        explained = client.get(f"/spritz/v1/explain/{job}").json()["explanations"]
        assert [one["verdict"] for one in explained] == ["waits"]
        assert client.get(f"/spritz/v1/script/{job}").json()["script"] == "#!/bin/sh\ntrue\n"
        assert client.get("/spritz/v1/topology").json()["networks"]
        assert client.get("/spritz/v1/shares").json()["rows"] == []
        until(lambda: client.get(f"/spritz/v1/history/{job}").json()["lives"], "accounting has heard of the job")
        for path, status in (
            ("explain/99999", 404), ("explain/x", 404), ("jobs?fields=script", 422), ("jobs?ids=1,", 422),
            ("nodes?names=nowhere", 500), ("nothing", 404),
        ):  # fmt: skip
            assert client.get(f"/spritz/v1/{path}").status_code == status, path
        client.delete(f"/slurm/v0.0.45/job/{job}")
    with site.tcp() as client:
        assert client.get("/spritz/v1/jobs").status_code == 401
