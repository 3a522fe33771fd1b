"""Tools that only read. Agents read their docstrings; their parameters make the schema.

Times are seconds since the epoch, memory is in MiB.
"""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from spritz.agents import calls
from spritz.agents.calls import CommandRunner, Refused
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.client.locate import locate_controller
from spritz.live import commands
from spritz.live.choice import ORDERS, Choice, chosen
from spritz.live.feed import cluster_name, whole
from spritz.live.logs import Tail, output_path, plain
from spritz.live.picture import Picture
from spritz.live.snapshot import job_facts, node_facts
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs


class ReadTools:
    """The tools, for the cluster of a slurm.conf (None: the one that commands find)."""

    def __init__(self, conf: str | None) -> None:
        self._conf = conf
        self._commands = CommandRunner(conf)

    def _picture(self) -> Picture:
        picture = Picture()
        try:
            with connect_controller(locate_controller(self._conf)) as controller:
                picture.apply(whole(controller, cluster=cluster_name(self._conf)))
        except ClientError as error:
            raise Refused(error.message) from error
        return picture

    def cluster_overview(self) -> dict[str, Any]:
        """The cluster at a glance: nodes, CPUs, GPUs in use and free by type, jobs by state. Call this first."""
        picture = self._picture()
        free = self._commands.json("spritz", "gpus", "--json") if picture.sums().gpus else {"types": []}
        troubled = [node for node in picture.nodes.values() if node.is_closed]
        return {
            "cluster": picture.cluster,
            "now": picture.now,
            **to_builtins(picture.sums()),
            "gpu_types": free["types"],
            "partitions": sorted({name for node in picture.nodes.values() for name in node.partitions}),
            "closed_nodes": [
                {"node": node.name, "state": node.state, "reason": plain(node.reason)} for node in troubled[:20]
            ],
        }

    def list_jobs(
        self, filter: str = "", order: str = "queue", ended: bool = False, limit: int = 50, cursor: str = ""
    ) -> dict[str, Any]:
        """Jobs of the queue. `filter`: words that must all match: user:alice state:pending part:gpu name:train
        account:ml node:n1 reason:prio, -word to exclude. `order`: queue, id, user, name, state, part, time, left,
        nodes, gpus, cpus, prio. `ended`: recently ended jobs too. `cursor`: next_cursor of the page before."""
        if order not in ORDERS:
            raise Refused(f"order: one of {', '.join(ORDERS)}")
        try:
            choice = Choice(filter, ended=ended)
        except ValueError as error:
            raise Refused(f"filter: {error}") from error
        picture = self._picture()
        jobs = chosen(picture.jobs.values(), choice, order, picture.now)
        answer = calls.page(jobs, limit, cursor, "jobs")
        return {**answer, "jobs": [job_facts(job, picture.now) for job in answer["jobs"]]}

    def job_details(self, job: str) -> dict[str, Any]:
        """The controller's record of a job, as `scontrol show job` prints it. For a waiting job also a sentence with
        the reason and the expected start."""
        record = self._commands.run("scontrol", "show", "job", calls.job_id(job))
        answer: dict[str, Any] = {"job": job, "record": calls.text(record)}
        if "JobState=PENDING" in record:
            first = self._commands.json("spritz", "why", "--json", job)["explanations"][0]
            answer["waits"] = {key: first[key] for key in ("verdict", "summary", "reason", "expected")}
        return answer

    def explain_job(self, job: str) -> dict[str, Any]:
        """Why a job waits, and when it is expected to start: limits, jobs ahead of it, jobs that must end first, nodes
        that do not fit and why, and changed requests that would start sooner (with the scontrol update for each)."""
        answer = self._commands.json("spritz", "why", "--json", calls.job_id(job))["explanations"]
        return {"explanations": answer[:20]}

    def job_log(self, job: str, lines: int = 100, contains: str = "") -> dict[str, Any]:
        """The end of a job's standard output (of its last 256 KiB), without escape sequences. `contains`: only lines
        with this text. The file is read as this user, on the machine where this server runs."""
        count = calls.rows(lines)
        path = self._output_of(calls.job_id(job))
        tail = Tail(path)
        tail.read()
        if tail.problem:
            raise Refused(f"{path}: {tail.problem}")
        matching = [line for line in tail.lines if contains in line]
        return {
            "job": job,
            "path": path,
            "bytes_before": tail.skipped,
            "lines": matching[-count:],
            "matching": len(matching),
        }

    def _output_of(self, job: str) -> str:
        number, _, task = job.partition("_")
        if not number.isdecimal() or (task and not task.isdecimal()):
            raise Refused("one job, or one task of an array: 7, 12_3")
        query = ListJobs(filter=JobFilter(targets=(JobTarget(int(number)),)), all=True)
        try:
            with connect_controller(locate_controller(self._conf)) as controller:
                jobs = [job for piece in controller.stream(query, Jobs, timeout=30.0) for job in piece.jobs]
        except ClientError as error:
            raise Refused(error.message) from error
        candidates = [job for job in jobs if job.array_task_id == (int(task) if task else None)] or jobs
        if not candidates or (task and candidates is jobs):
            raise Refused("Invalid job id specified")
        path = output_path(candidates[0])
        if not path:
            raise Refused("its output goes to the terminal of its srun or salloc")
        return path

    def list_nodes(self, filter: str = "", limit: int = 50, cursor: str = "") -> dict[str, Any]:
        """Nodes with state, CPUs, memory, jobs, and each GPU with the job that holds it. `filter`: words that must all
        occur in the node's name, state, partitions or reason, such as drain or gpu."""
        picture = self._picture()
        words = filter.lower().split()
        nodes = [
            node
            for node in picture.nodes.values()
            if all(
                word in f"{node.name} {node.state} {' '.join(node.partitions)} {node.reason}".lower() for word in words
            )
        ]
        holders = picture.holders()
        answer = calls.page(nodes, limit, cursor, "nodes")
        return {**answer, "nodes": [node_facts(node, holders.get(node.name, {})) for node in answer["nodes"]]}

    def free_gpus(self) -> dict[str, Any]:
        """GPUs by type: total, in use, free, and when and where the next become free at the latest."""
        answer = self._commands.json("spritz", "gpus", "--json")
        free = [node for node in answer["nodes"] if node["free"]]
        return {"now": answer["now"], "types": answer["types"], "nodes": free[:100]}

    def list_runs(self, search: str = "", state: str = "", tag: str = "", limit: int = 20) -> dict[str, Any]:
        """Runs of `spritz run`, newest first: name, command, state, metrics. `search`: part of the name or command, a
        job number or a commit. `state`: running, failed …"""
        words = ["spritz", "runs", "--json", "-n", str(calls.rows(limit))]
        words += [f"--state={state}"] if state else []
        words += [f"--tag={tag}"] if tag else []
        return dict(self._commands.json(*words, *(["--", search] if search else [])))

    def show_run(self, run: str) -> dict[str, Any]:
        """The whole record of a run: command, code, environment, resources, state, result."""
        return {"run": self._commands.json("spritz", "show", "--json", calls.name(run, "run"))}

    def diff_runs(self, run: str, other: str) -> dict[str, Any]:
        """How two runs differ: command, options, code, environment, results."""
        printed = self._commands.run("spritz", "diff", calls.name(run, "run"), calls.name(other, "run"))
        return {"diff": calls.text(printed)}

    def list_sweeps(self, limit: int = 20) -> dict[str, Any]:
        """Sweeps, newest first, with the states of their trials and the best trial."""
        return dict(self._commands.json("spritz", "sweeps", "--json", "-n", str(calls.rows(limit))))

    def job_history(self, job: str) -> dict[str, Any]:
        """The history of a job since its submission, from accounting: waits and their reasons, starts, steps, end."""
        return {"history": self._commands.json("spritz", "history", "--json", calls.job_id(job))}

    def past_jobs(
        self, since: str = "now-1days", state: str = "", user: str = "", limit: int = 50, cursor: str = ""
    ) -> dict[str, Any]:
        """Jobs from accounting, newest first. `since`: now-2hours, 2026-11-23, 2026-11-23T10:00. `state`: F, CD, TO,
        OOM …; `user`: only this user's jobs (as far as you may see them)."""
        fields = ("JobID", "User", "Account", "JobName", "Partition", "State", "ExitCode", "Elapsed", "Start", "End")
        words = ["sacct", "-nPX", "-S", since, "-o", ",".join((*fields, "NNodes", "AllocTRES")), "--delimiter=\x1f"]
        words += ["-s", state, "-E", "now"] if state else []
        words += ["-u", calls.name(user, "user")] if user else []
        names = [*(field.lower() for field in fields), "nodes", "resources"]
        lines = self._commands.run(*words).splitlines()[::-1]
        return calls.page([dict(zip(names, line.split("\x1f"), strict=False)) for line in lines], limit, cursor, "jobs")

    def job_efficiency(self, jobs: list[str]) -> dict[str, Any]:
        """The CPUs, memory, GPUs and time that jobs used of those requested, and advice for the next request."""
        if not 1 <= len(jobs) <= 50:
            raise Refused("jobs: 1 to 50")
        return dict(self._commands.json("spritz", "eff", "--json", *map(calls.job_id, jobs)))

    def fair_share(self, users: str = "", accounts: str = "") -> dict[str, Any]:
        """Shares, usage and fair-share factors as sshare prints them. `users`, `accounts`: comma-separated names; ""
        for all accounts."""
        words = ["sshare", "-nPl", "-o", "Account,User,RawShares,NormShares,RawUsage,EffectvUsage,FairShare"]
        words += ["-u", calls.name(users, "users")] if users else ["-a"]
        words += ["-A", calls.name(accounts, "accounts")] if accounts else []
        names = ("account", "user", "shares", "normalized_shares", "usage", "effective_usage", "fair_share")
        lines = self._commands.run(*words).splitlines()
        shares = [dict(zip(names, line.strip().split("|"), strict=False)) for line in lines[: calls.ROWS_MAX]]
        return {"shares": shares}

    def test_submission(self, script: str, options: list[str] | None = None, directory: str = "") -> dict[str, Any]:
        """Test a batch script without submitting it (`sbatch --test-only`): when and where it would start, or the
        refusal."""
        done = commands.run(
            ["sbatch", "--test-only", *(options or [])], conf=self._conf, stdin=script, cwd=directory or None
        )
        if done.status:
            raise Refused(done.complaint)
        return {"answer": (done.out + done.err).strip()}


#: (method, title)
TOOLS = (
    ("cluster_overview", "Cluster at a glance"),
    ("list_jobs", "Queue"),
    ("job_details", "One job"),
    ("explain_job", "Why a job waits, and its expected start"),
    ("job_log", "End of a job's output"),
    ("list_nodes", "Nodes"),
    ("free_gpus", "Free GPUs"),
    ("list_runs", "Runs"),
    ("show_run", "One run"),
    ("diff_runs", "How two runs differ"),
    ("list_sweeps", "Sweeps"),
    ("job_history", "History of a job"),
    ("past_jobs", "Jobs in accounting"),
    ("job_efficiency", "Use of requested resources"),
    ("fair_share", "Fair share"),
    ("test_submission", "Test a submission"),
)
