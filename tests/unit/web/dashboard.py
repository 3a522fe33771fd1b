"""A whole dashboard in this process, on a slurmrestd and commands that are not real: for tests of every route.

slurmrestd's part knows one job (7, of vera), one node (n1) and who may do what: vera is a user, oscar an operator, ada
an administrator. Everything that would change the cluster is noted in `acts`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.routing import Route

from spritz.http.records import columns_of
from spritz.http.rest import Rest, events_of
from spritz.http.stream import Bookmark, Event
from spritz.http.transport import Answer, Stream
from spritz.web import app, commands, picture, users
from spritz.web.app import Settings, Site, application
from spritz.web.login import Login, SiteLogin
from spritz.web.main import routes
from spritz.web.records import Job
from spritz.web.sessions import Secret, Session

#: The people, and which of them may act for others.
PEOPLE, OPERATORS = ("vera", "oscar", "ada"), ("oscar", "ada")

NOW = 1_795_000_000.0

#: Job 7, as slurmctld has it.
JOB: dict[str, Any] = {
    "job_id": 7, "name": "train-1", "user_name": "vera", "account": "lab", "partition": "main", "qos": "normal",
    "job_state": ["PENDING"], "submit_time": {"set": True, "number": int(NOW) - 60}, "start_time": {"number": 0},
    "end_time": {"number": 0}, "restart_cnt": 0, "stdout_expanded": "/home/vera/runs/train-1/log/job.log",
    "submit_line": "sbatch job.sh", "current_working_directory": "/home/vera", "nodes": "", "licenses": "",
}  # fmt: skip

#: A run of vera whose job it is.
RUN: dict[str, Any] = {
    "name": "train-1", "owner": "vera", "created_at": NOW - 61, "job_id": "7", "state": "PENDING", "exit_code": None,
    "started_at": None, "ended_at": None, "branch": "", "commit_id": "", "tree": "", "parent": "", "run_group": "",
    "command": "python train.py", "tags": [], "metrics": {}, "directory": "/home/vera/runs/train-1", "changed": False,
}  # fmt: skip

_RUN_RECORD = {
    "run": {"name": "train-1", "created_at": NOW - 61, "tags": [], "command": ["python"], "parameters": {}, "group": "",
            "parent": "", "surroundings": {}},
    "index": RUN, "events": [], "points": [], "series": [],
}  # fmt: skip


_NODE = {"name": "n1", "state": ["IDLE"], "cpus": 4, "partitions": ["main"]}


def _row() -> list[Any]:
    values = {
        "id": 7, "array_job_id": 0, "het_job_id": 0, "name": "train-1", "user": "vera", "account": "lab",
        "qos": "normal", "partition": "main", "state": "PENDING", "reason": "Resources", "reason_detail": "",
        "priority": 1, "submitted_at": NOW - 60, "eligible_at": NOW - 60, "started_at": 0.0, "ends_at": 0.0,
        "ended_at": 0.0, "exit_status": 0, "restart_count": 0, "completing": [], "nodes_min": 1, "tasks": 1,
        "gpus_per_node": [], "cpu_count": 1, "gpu_count": 0,
    }  # fmt: skip
    return [values.get(name) for name in columns_of(Job).split(",")]


def frame(name: str, data: bytes, sequence: int = 1) -> bytes:
    """An event as the stream has it."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (sequence, name.encode(), data)


class FakeRest(Rest):
    """slurmrestd with the rights of `user`."""

    def __init__(self, dashboard: Dashboard, user: str) -> None:
        super().__init__("http://slurmrestd")
        self._dashboard, self._user = dashboard, user
        self._http.send = self._answer  # type: ignore[method-assign]  # all that is sent comes here

    @asynccontextmanager
    async def events(
        self, bookmark: Bookmark | None = None, types: Iterable[str] = ()
    ) -> AsyncIterator[AsyncIterator[Event]]:
        yield events_of(cast(Stream, self._dashboard), bookmark or Bookmark())

    async def _answer(
        self, method: str, path: str, *, parameters: Mapping[str, str] | None = None, body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        def answer(status: int, content: Any) -> Answer:
            return Answer(status, {}, json.dumps(content).encode())

        path = (
            urlsplit(self._http._url(path, parameters))
            .path.removeprefix("/slurm/v0.0.45")
            .removeprefix("/slurmdb/v0.0.45")
        )
        if method == "GET" and not path.endswith("/requeue"):
            if (parameters or {}).get("fields", "").startswith("id,expected"):
                return answer(200, {"now": NOW, "rows": []})
            known = self._dashboard.answers.get(path)
            if known is None:
                return answer(404, {"errors": [{"description": f"There is no {path}"}]})
            return answer(200, known)
        if path.startswith("/job/"):
            may = self._user in ("vera", *OPERATORS)
        else:
            may = self._user in OPERATORS
        if not may:
            return answer(500, {"errors": [{"description": "Access/permission denied"}]})
        self._dashboard.acts.append((self._user, method, path))
        return answer(200, {"errors": []})


class Dashboard:
    """See the module docstring. `login`: by default, by name and password, as a site's users do."""

    def __init__(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, login: Login | None = None, **settings: Any
    ) -> None:
        self.acts: list[tuple[str, str, str]] = []
        #: what the event stream sends next
        self.news: asyncio.Queue[bytes] = asyncio.Queue()
        self.job = dict(JOB)
        self.answers: dict[str, Any] = {
            "/spritz/v1/jobs": {"now": NOW, "rows": [_row()]},
            "/spritz/v1/nodes": {"now": NOW, "nodes": [_NODE]},
            "/job/7": {"jobs": [self.job]},
            "/spritz/v1/history/7": {"lives": []},
            "/spritz/v1/script/7": {"script": "#!/bin/sh\n"},
            "/spritz/v1/explain/7": {"explanations": []},
            "/partitions": {"partitions": [{"name": "main"}]},
            "/partition/main": {"partitions": [{"name": "main"}]},
            "/reservations": {"reservations": []},
            "/spritz/v1/topology": {"networks": []},
            "/shares": {"shares": {"shares": []}},
            "/spritz/v1/shares": {},
            "/ping": {"pings": []},
            "/diag": {"statistics": {}},
        }  # fmt: skip
        self.runs = [dict(RUN)]
        self._rests_by_user: dict[str, FakeRest] = {}
        if login is None:
            login = SiteLogin("true")
            login.kind = "password"
            monkeypatch.setattr(login, "token", _no_token)
            monkeypatch.setattr(login, "check", _by_name)
        monkeypatch.setattr(commands, "run", self._command)
        monkeypatch.setattr(commands, "path_of", lambda name: f"/nowhere/{name}")
        monkeypatch.setattr(users, "account", _nobody)
        monkeypatch.setattr(app, "Recorder", _Recorder)
        monkeypatch.setattr(picture, "AGAIN_SECONDS", 0.0)
        self.site = Site(Settings(rest="", own_files=True, **settings), Secret(b"k" * 32), login, directory)
        monkeypatch.setattr(self.site, "rest", self._rest)
        self.routes: list[Route] = routes(self.site)
        self.app = application(self.site, self.routes)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The event stream, for `Rest`."""
        while True:
            yield await self.news.get()

    async def _rest(self, session: Session) -> Rest:
        if session.user not in self._rests_by_user:
            self._rests_by_user[session.user] = FakeRest(self, session.user)
        return self._rests_by_user[session.user]

    async def _command(self, name: str, *words: str, **_: Any) -> tuple[int, str, str]:
        if "\0" in "".join(words):
            raise ValueError("embedded null byte")
        if name in ("sbatch", "sh"):
            self.acts.append((name, *words[-2:]))  # type: ignore[arg-type]  # for people who read a failure
            return 0, "8\n", ""
        if name == "spritz":
            if words[0] in ("pause", "resume", "rerun"):
                self.acts.append((name, words[0], words[-1]))
                return 0, "done", ""
            known: dict[str, Any] = {
                "runs": {"runs": self.runs}, "show": _RUN_RECORD, "sweeps": {"sweeps": []},
                "sweep": {"sweep": "s", "metric": "", "trials": [], "direction": "minimize", "states": {}},
                "pipeline": {"name": "p", "state": "RUNNING", "pipelines": [], "steps": [], "parameters": {}},
                "diff": {}, "files": {"run": "train-1", "count": 1, "size": 9, "files": [
                    {"path": "out/a b.pt", "size": 9, "changed_at": NOW}]},
            }  # fmt: skip
            return 0, json.dumps(known[words[0]]), ""
        return 0, "", ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with self.site.running(None):  # type: ignore[arg-type]  # it does not use the application
            yield

    @asynccontextmanager
    async def browser(self, word: str = "", **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        """A browser with the cookie of a session."""
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        cookies = {self.site.cookie: word} if word else {}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", cookies=cookies, headers=headers, timeout=60, verify=False
        ) as client:
            yield client

    def form_token(self, word: str) -> str:
        session = self.site.sessions.find(word)
        return self.site.secret.form_token(session) if session is not None else ""


class _Recorder:
    """Samples nothing; notes which jobs it is asked to watch."""

    def __init__(self, site: Site) -> None:
        self.problem = ""
        self.watched: list[int] = []

    def watch(self, job: int) -> None:
        self.watched.append(job)

    async def run(self) -> None:
        await asyncio.Event().wait()


async def _nobody(view: Any) -> None:
    return None


async def _no_token(user: str) -> str:
    return ""


async def _by_name(user: str, password: str) -> str:
    return user if password == f"of {user}" else ""


def form_token_of(text: str) -> str:
    match = re.search(r'X-Form-Token": "(\w*)"', text)
    assert match, text[:500]
    return match[1]
