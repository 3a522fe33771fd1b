"""Pages about the cluster: queue, history, jobs, nodes, partitions, usage, health."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spritz.http.rest import VERSION, RestError
from spritz.notation.hostlist import expand
from spritz.web import commands, curves, drawing, logs, run_pages
from spritz.web.app import Site, View, route
from spritz.web.details import detail_of
from spritz.web.records import Job
from spritz.web.words import count, memory, reason_text, span, state

#: Rows on each page of a listing.
ROWS = 50

_SPANS = {"1h": 3600.0, "6h": 6 * 3600.0, "1d": 86_400.0, "3d": 3 * 86_400.0, "7d": 7 * 86_400.0}


def routes(site: Site) -> list[Route]:
    return [
        route(path, site.page(page))
        for path, page in (
            ("/", overview),
            ("/grid.json", grid),
            ("/queue", queue),
            ("/history", history),
            ("/timeline", timeline),
            ("/jobs/{job:number}", job_page),
            ("/jobs/{job:number}/log", job_log),
            ("/jobs/{job:number}/log/find", job_log_find),
            ("/jobs/{job:number}/explain", job_explain),
            ("/jobs/{job:number}/series.json", job_series),
            ("/nodes", nodes),
            ("/nodes/{name}", node_page),
            ("/partitions", partitions),
            ("/partitions/{name}", partition_page),
            ("/reservations", reservations),
            ("/topology", topology),
            ("/usage", usage),
            ("/usage/past", past_usage),
            ("/usage/series.json", cluster_series),
            ("/health", health),
        )
    ]


def active_first(job: Job) -> tuple[int, float]:
    """Sort key: jobs with the most GPUs or CPUs first, then the newest."""
    return -job.gpus, -job.started_at


async def overview(view: View) -> Response:
    """The start page: the whole cluster at a glance."""
    picture = view.picture
    running = sorted((job for job in picture.jobs.values() if job.raw_state == "RUNNING"), key=active_first)
    pending = [job for job in picture.jobs.values() if job.is_pending]
    reasons: Counter[str] = Counter()
    for job in pending:
        reasons[job.reason] += job.waiting_tasks
    ended = sorted((job for job in picture.jobs.values() if job.is_over), key=lambda job: -job.ended_at)
    return view.render(
        "overview.html",
        title="Overview",
        capacities=drawing.capacities(picture),
        conditions=Counter(node.condition for node in picture.nodes.values()),
        running=running,
        pending=sorted(pending, key=lambda job: (_expected(view, job), -job.priority)),
        waiting=sum(reasons.values()),
        reasons=reasons.most_common(6),
        ended=ended[:6],
        colour=view.query.get("colour") or ("user" if len({job.user for job in running}) > 1 else "job"),
    )


def _expected(view: View, job: Job) -> float:
    return view.picture.expected.get(job.id, (float("inf"), ()))[0]


async def grid(view: View) -> Response:
    """The occupancy as JSON, for the drawing."""
    tag = f'"{view.picture.version}"'
    if view.request.headers.get("if-none-match") == tag:
        return Response(status_code=304)
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    return Response(drawing.grid(view.picture), headers=headers, media_type="application/json")


_SORTS: dict[str, Any] = {
    "id": lambda view, job: job.id,
    "name": lambda view, job: job.name.lower(),
    "user": lambda view, job: job.user,
    "partition": lambda view, job: job.partition,
    "state": lambda view, job: job.state,
    "gpus": lambda view, job: job.gpus,
    "priority": lambda view, job: job.priority,
    "time": lambda view, job: job.started_at or _expected(view, job),
}
_ORDER = {"RUNNING": 0, "COMPLETING": 0, "SUSPENDED": 1, "PENDING": 2}


def chosen_jobs(view: View) -> list[Job]:
    """The jobs that match the query's filters, in its order."""
    query = view.query
    state, text = query.get("state", ""), query.get("q", "").strip().lower()
    jobs = []
    for job in view.picture.jobs.values():
        if state == "pending" and not job.is_pending:
            continue
        if state == "running" and not job.is_active:
            continue
        if state == "ended" and not (job.is_over and not job.completing):
            continue
        if not state and job.is_over and not job.completing:
            continue
        if query.get("user") and job.user != query["user"]:
            continue
        if query.get("partition") and query["partition"] not in job.partition.split(","):
            continue
        if query.get("account") and job.account != query["account"]:
            continue
        if query.get("reason") and job.reason != query["reason"]:
            continue
        if query.get("node") and query["node"] not in job.node_names:
            continue
        if text and text not in f"{job.label} {job.id} {job.name} {job.user} {job.account}".lower():
            continue
        jobs.append(job)
    key = _SORTS.get(query.get("sort", ""))
    if key is not None:
        jobs.sort(key=lambda job: (key(view, job), job.id), reverse=query.get("dir") == "down")
    else:
        jobs.sort(key=lambda job: (_ORDER.get(job.state, 3), -job.priority if job.is_pending else -job.id, job.id))
    return jobs


async def queue(view: View) -> Response:
    """A page of jobs, with the reason why each waits."""
    picture = view.picture
    jobs = chosen_jobs(view)
    pages = max(1, -(-len(jobs) // ROWS))
    page = page_number(view.query, pages)
    counts = Counter(
        "pending" if job.is_pending else "running" if job.is_active else "ended" for job in picture.jobs.values()
    )
    return view.render(
        "queue.html",
        title="Queue",
        jobs=jobs[(page - 1) * ROWS : page * ROWS],
        total=len(jobs),
        page=page,
        pages=pages,
        counts=counts,
        users=sorted({job.user for job in picture.jobs.values()}),
        partitions=sorted({name for job in picture.jobs.values() for name in job.partition.split(",") if name}),
        accounts=sorted({job.account for job in picture.jobs.values() if job.account}),
    )


#: Columns of sacct in the history of jobs.
_COLUMNS = (
    "jobidraw", "jobid", "jobname", "user", "account", "partition", "state", "exitcode", "start", "end", "elapsedraw",
    "alloctres", "nodelist",
)  # fmt: skip

#: Most jobs in the history; filters narrow the selection.
_HISTORY_MAX = 5_000

#: States of the history's filter -> states of sacct.
_HISTORY_STATES = {
    "completed": "CD",
    "failed": "F,TO,NF,OOM,BF,DL",
    "cancelled": "CA",
    "preempted": "PR",
}


async def history(view: View) -> Response:
    """Ended jobs from accounting: rows of sacct."""
    query = view.query
    days = query.get("days", "1")
    words = ["-X", "-P", "-n", "-a", "--delimiter=\x1f", f"--format={','.join(_COLUMNS)}"]
    words += ["-S", f"now-{days if days in _DAYS else '1'}days", "-E", "now"]
    words += ["-s", _HISTORY_STATES.get(query.get("state", ""), "CD,F,TO,NF,OOM,CA,PR,BF,DL")]
    for name, option in (("user", "--user"), ("account", "--accounts"), ("partition", "--partition")):
        if query.get(name):
            words.append(f"{option}={query[name]}")
    status, out, errors = await commands.run("sacct", *words, token=await view.site.login.token(view.session.user))
    rows: list[dict[str, Any]] = []
    text = query.get("q", "").strip().lower()
    for line in reversed(out.splitlines()):
        fields = dict(zip(_COLUMNS, line.split("\x1f"), strict=False))
        if len(fields) == len(_COLUMNS) and text in f"{fields['jobid']} {fields['jobname']} {fields['user']}".lower():
            rows.append({**fields, "gpus": _tres_count(fields["alloctres"], "gres/gpu")})
    rows.sort(key=lambda row: row["end"], reverse=True)
    pages = max(1, -(-min(len(rows), _HISTORY_MAX) // ROWS))
    page = page_number(query, pages)
    return view.render(
        "history.html",
        title="History",
        rows=rows[(page - 1) * ROWS : page * ROWS],
        total=len(rows),
        page=page,
        pages=pages,
        days=_DAYS,
        day=days,
        states=list(_HISTORY_STATES),
        problem=commands.plain(errors) if status else "",
    )


def page_number(query: Mapping[str, str], pages: int) -> int:
    """The page of a listing that the address names, from 1; the nearest of `pages` for a number out of range."""
    text = query.get("page", "1")
    return min(pages, max(1, int(text))) if text.isdecimal() and len(text) < 10 else 1


def _tres_count(tres: str, name: str) -> int:
    for word in tres.split(","):
        key, _, amount = word.partition("=")
        if key == name and amount.isdecimal():
            return int(amount)
    return 0


async def timeline(view: View) -> Response:
    """The time line of running jobs and expected starts."""
    jobs = [job for job in chosen_jobs(view) if not job.is_over]
    word = view.query.get("span", "6h")
    seconds = _SPANS.get(word, _SPANS["6h"])
    drawn = drawing.timeline(view.picture, jobs, seconds)
    unknown = sum(1 for job in jobs if job.is_pending and job.id not in view.picture.expected)
    return view.render("timeline.html", title="Time line", line=drawn, spans=list(_SPANS), span=word, unknown=unknown)


async def job_of(view: View, number: int) -> Job:
    """The job, from the picture or from accounting. Raises RestError."""
    return view.picture.jobs.get(number) or _from_accounting(await detail_of(view, number))


async def _or_none(view: View, path: str) -> Any:
    """An answer of slurmrestd, or None on an error: for parts of a page that may be missing."""
    try:
        return await view.rest.get(path, dict)
    except RestError:
        return None


async def job_page(view: View) -> Response:
    number = view.request.path_params["job"]
    detail, history, script = await asyncio.gather(
        detail_of(view, number),
        _or_none(view, f"/spritz/v1/history/{number}"),
        _or_none(view, f"/spritz/v1/script/{number}"),
    )
    job = view.picture.jobs.get(number) or _from_accounting(detail)
    explained = await _or_none(view, f"/spritz/v1/explain/{number}?others=no") if job.is_pending else None
    run = await run_pages.run_of_job(view, detail)
    lives = history["lives"] if history else []
    cells = [
        (name, drawing.cells_of(view.picture.nodes[name], [job]))
        for name in job.node_names
        if name in view.picture.nodes
    ]
    # A shared link shows one job, and no others of its array.
    array = job.array_job_id if view.session.share is None else 0
    tasks = [task for task in view.picture.jobs.values() if array and task.array_job_id == array]
    return view.render(
        "job.html",
        title=f"Job {job.label}",
        job=job,
        detail=detail,
        explanation=explained["explanations"][0] if explained and explained["explanations"] else None,
        lives=lives,
        moments=moments(lives, view.now),
        script=script["script"] if script else "",
        cells=cells[:64],
        tasks=sorted(tasks, key=lambda task: (task.array_task_id is None, task.array_task_id or 0))[:200],
        log_files=logs.files_of(detail, await logs.ranks_of(view, run)),
        efficiency=efficiency(detail, lives),
        run=run,
    )


def _from_accounting(detail: dict[str, Any]) -> Job:
    """The row of a job that the controller has forgotten, from accounting's record."""
    if detail["now"]:
        number = {name: (detail.get(name) or {}).get("number", 0) for name in ("submit_time", "start_time", "end_time")}
        return Job(
            id=detail["job_id"], name=detail["name"], user=detail["user_name"], account=detail["account"],
            partition=detail["partition"], qos=detail["qos"], raw_state=(detail["job_state"] or ["UNKNOWN"])[0],
            submitted_at=number["submit_time"], started_at=number["start_time"], ends_at=number["end_time"],
        )  # fmt: skip
    code = detail["exit_code"]
    status = (code["return_code"]["number"] << 8) + (code["signal"]["id"].get("number", 0) or 0)
    limit = detail["time"]["limit"]
    return Job(
        id=detail["job_id"], name=detail["name"], user=detail["user"], account=detail["account"],
        partition=detail["partition"], qos=detail["qos"], raw_state=(detail["state"]["current"] or ["UNKNOWN"])[0],
        submitted_at=detail["time"]["submission"], started_at=detail["time"]["start"], ended_at=detail["time"]["end"],
        time_limit_minutes=(limit.get("number") if limit.get("set") else None) or None, exit_status=status,
        nodes_min=detail["allocation_nodes"], restart_count=detail["restart_cnt"],
    )  # fmt: skip


def moments(lives: list[dict[str, Any]], now: float) -> list[tuple[float, str, str]]:
    """(seconds since the epoch, class of colour, text) of the job's history through all restarts, oldest first."""
    entries: list[tuple[float, str, str]] = []
    for life in lives:
        job = life["job"]
        number = job.get("restart_count", 0)
        entries.append((job["submitted_at"], "wait", f"Requeued, restart {number}" if number else "Submitted"))
        for reason in life["reasons"]:
            if reason["reason"] != "None":
                text = reason_text(reason["reason"], reason.get("detail", ""))
                entries.append((reason["at"], "wait", f"Waits: {text}"))
        if job.get("started_at") and job.get("nodes"):
            entries.append((job["started_at"], "run", f"Started on {job['nodes']}"))
        for step in life["steps"]:
            if step.get("step_id", 0) < 0xFFFFFF00 and step.get("started_at"):
                tasks = count(step.get("tasks", 1), "task")
                entries.append((step["started_at"], "run", f"Step {step['step_id']} {step['name']}: {tasks}"))
        for pause in life["suspensions"]:
            entries.append((pause["started_at"], "pause", "Suspended"))
            if pause.get("ended_at"):
                entries.append((pause["ended_at"], "run", "Resumed"))
        if job.get("ended_at"):
            colour, text = state(job["state"])
            code = job.get("exit_status", 0)
            after = f" after {span(job['ended_at'] - job['started_at'])}" if job.get("started_at") else ""
            ended = f"{text}{after}, exit code {code >> 8}:{code & 127}"
            entries.append((job["ended_at"], colour, ended))
    return sorted(entries, key=lambda entry: entry[0])


def efficiency(detail: dict[str, Any], lives: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """(resource, percent used, text) for CPUs and memory, from accounting's records since the last restart."""
    if not lives:
        return []
    life = lives[-1]
    job = life["job"]
    seconds = (job.get("ended_at") or 0) - (job.get("started_at") or 0)
    if seconds <= 0 or not job.get("cpus"):
        return []
    used = sum(step.get("user_cpu_seconds", 0) + step.get("system_cpu_seconds", 0) for step in life["steps"])
    rows = [
        (
            "CPU", min(100, round(100 * used / (seconds * job["cpus"]))),
            f"{span(used)} of {span(seconds * job['cpus'])} that {count(job['cpus'], 'CPU')} had",
        )
    ]  # fmt: skip
    peak = max((_peak_memory(step) for step in life["steps"]), default=0)
    asked = _mib(job.get("tres_allocated", ""))
    if peak and asked:
        text = f"peak {memory(peak)} of {memory(asked)} requested"
        rows.append(("Memory", min(100, round(100 * peak / asked)), text))
    return rows


def _peak_memory(step: dict[str, Any]) -> int:
    """Peak memory of a step, in MiB."""
    for metric in step.get("metrics", ()):
        if metric and metric[0] == "mem":
            return int(metric[1]) >> 20
    return 0


def _mib(tres: str) -> int:
    for word in tres.split(","):
        name, _, amount = word.partition("=")
        if name == "mem" and amount:
            scale = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}.get(amount[-1], 1)
            return int(float(amount.rstrip("KMGT")) * scale)
    return 0


async def job_explain(view: View) -> Response:
    """Why the job waits, and changes with which it would start sooner. Loaded separately, because it is slow."""
    number = view.request.path_params["job"]
    answer = await view.rest.get(f"/spritz/v1/explain/{number}", dict)
    explanations = answer["explanations"]
    return view.render("explain.html", title=f"Job {number}", explanation=explanations[0] if explanations else None)


async def job_log(view: View) -> Response:
    """A piece of a job's output, as JSON: its end, the additions after `from`, or the part before `before`."""
    return JSONResponse(await logs.piece(view, view.request.path_params["job"]), headers={"Cache-Control": "no-store"})


async def job_log_find(view: View) -> Response:
    """Lines of a job's output that contain a text, as JSON."""
    answer = await logs.find(view, view.request.path_params["job"], view.query.get("q", ""))
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


async def job_series(view: View) -> Response:
    """A job's usage over time, as JSON figures."""
    number = view.request.path_params["job"]
    job = (
        _from_accounting(await detail_of(view, number))
        if view.session.share is not None
        else await job_of(view, number)
    )
    if job.raw_state == "RUNNING" and view.request.method == "GET":
        view.site.recorder.watch(number)
    since = job.started_at or job.submitted_at
    rows = await asyncio.to_thread(view.site.samples.of_job, number, since)
    return _figures(view, curves.of_job(job, rows))


async def cluster_series(view: View) -> Response:
    """The cluster's usage over time, as JSON figures; empty for viewers that may not see nodes."""
    seconds = _PERIODS.get(view.query.get("over", ""), _PERIODS["1d"])
    rows = await asyncio.to_thread(view.site.samples.of_cluster, view.now - seconds) if view.picture.nodes else []
    return _figures(view, curves.of_cluster(rows))


def _figures(view: View, figures: list[dict[str, Any]]) -> Response:
    answer = {"figures": figures, "problem": view.site.recorder.problem}
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


async def nodes(view: View) -> Response:
    """A page of the nodes that match the query."""
    text, condition = view.query.get("q", "").strip().lower(), view.query.get("condition", "")
    partition = view.query.get("partition", "")
    matching = [
        node
        for node in view.picture.nodes.values()
        if (not text or text in f"{node.name} {node.gpu_types} {' '.join(node.features)} {node.reason}".lower())
        and (not condition or node.condition == condition)
        and (not partition or partition in node.partitions)
    ]
    pages = max(1, -(-len(matching) // ROWS))
    page = page_number(view.query, pages)
    shown = matching[(page - 1) * ROWS : page * ROWS]
    by_node = view.picture.by_node()
    return view.render(
        "nodes.html",
        title="Nodes",
        nodes=[(node, drawing.cells_of(node, by_node.get(node.name, ())), drawing.busy(node)) for node in shown],
        total=len(matching),
        page=page,
        pages=pages,
        conditions=Counter(node.condition for node in view.picture.nodes.values()),
        partitions=sorted({name for node in view.picture.nodes.values() for name in node.partitions}),
    )


async def node_page(view: View) -> Response:
    """The page of a node, with its jobs."""
    name = view.request.path_params["name"]
    node = view.picture.nodes.get(name)
    if node is None:
        raise RestError(f"There is no node {name}.", 404)
    jobs = view.picture.by_node().get(name, [])
    past = [job for job in view.picture.jobs.values() if job.is_over and name in job.node_names and not job.completing]
    return view.render(
        "node.html",
        title=f"Node {name}",
        node=node,
        jobs=sorted(jobs, key=lambda job: job.id),
        cells=drawing.cells_of(node, jobs),
        past=sorted(past, key=lambda job: -job.ended_at)[:20],
        samples={sample.index: sample for sample in node.gpu_samples},
        busy=drawing.busy(node),
    )


async def partitions(view: View) -> Response:
    """The list of partitions, with their resources in use."""
    answer = await view.rest.get(f"/slurm/{VERSION}/partitions", dict)
    rows = []
    for partition in answer["partitions"]:
        members = [node for node in view.picture.nodes.values() if partition["name"] in node.partitions]
        jobs = [job for job in view.picture.jobs.values() if partition["name"] in job.partition.split(",")]
        rows.append(
            {
                **partition,
                "gpus": sum(node.gpu_count for node in members),
                "gpus_used": sum(node.gpus_in_use for node in members),
                "cpus_total": sum(node.cpus for node in members),
                "cpus_used": sum(node.cpus_allocated for node in members),
                "running": sum(1 for job in jobs if job.is_active),
                "pending": sum(job.waiting_tasks for job in jobs if job.is_pending),
            }
        )
    return view.render("partitions.html", title="Partitions", partitions=rows)


async def partition_page(view: View) -> Response:
    """The page of a partition, with its nodes and jobs."""
    name = view.request.path_params["name"]
    answer = await view.rest.get(f"/slurm/{VERSION}/partition/{quote(name, safe='')}", dict)
    members = [node for node in view.picture.nodes.values() if name in node.partitions]
    by_node = view.picture.by_node()
    jobs = [job for job in view.picture.jobs.values() if name in job.partition.split(",")]
    return view.render(
        "partition.html",
        title=f"Partition {name}",
        one=answer["partitions"][0],
        nodes=[
            (node, drawing.cells_of(node, by_node.get(node.name, ())), drawing.busy(node)) for node in members[:200]
        ],
        total=len(members),
        running=[job for job in jobs if job.is_active][:50],
        pending=[job for job in jobs if job.is_pending][:50],
        conditions=Counter(node.condition for node in members),
    )


async def reservations(view: View) -> Response:
    """The list of reservations, the earliest first."""
    answer = await view.rest.get(f"/slurm/{VERSION}/reservations", dict)
    rows = sorted(answer["reservations"], key=lambda reservation: reservation["start_time"]["number"])
    return view.render("reservations.html", title="Reservations", reservations=rows)


async def topology(view: View) -> Response:
    """The topology: switches and blocks with their nodes."""
    answer = await view.rest.get("/spritz/v1/topology", dict)
    by_node = view.picture.by_node()

    def strip(hosts: str) -> list[Any]:
        known = [view.picture.nodes[name] for name in expand(hosts) if name in view.picture.nodes] if hosts else []
        return [(node, drawing.cells_of(node, by_node.get(node.name, ()))) for node in known]

    networks = []
    placed: set[str] = set()
    for network in answer["networks"]:
        units = [(leaf["name"], leaf["nodes"]) for leaf in network.get("switches", ()) if not leaf.get("switches")]
        units += [(block["name"], block["nodes"]) for block in network.get("blocks", ())]
        above = [switch for switch in network.get("switches", ()) if switch.get("switches")]
        shown = [(name, hosts, strip(hosts)) for name, hosts in units]
        placed.update(node.name for _, _, known in shown for node, _ in known)
        networks.append({**network, "units": shown, "above": sorted(above, key=lambda switch: -switch["level"])})
    unplaced = [node for node in view.picture.nodes.values() if node.name not in placed]
    others = [(node, drawing.cells_of(node, by_node.get(node.name, ()))) for node in unplaced]
    return view.render("topology.html", title="Topology", networks=networks, others=others)


async def usage(view: View) -> Response:
    """Fair shares and usage, by account and user."""
    shares, guarantees = await asyncio.gather(
        view.rest.get(f"/slurm/{VERSION}/shares", dict), _or_none(view, "/spritz/v1/shares")
    )
    now: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for job in view.picture.jobs.values():
        if job.is_active:
            now[job.user] += job.cpus
            gpus[job.user] += job.gpus
        elif job.is_pending:
            waiting[job.user] += job.waiting_tasks
    users = sorted({*now, *waiting}, key=lambda user: (-gpus[user], -now[user], user))
    return view.render(
        "usage.html",
        title="Usage",
        shares=shares["shares"]["shares"],
        guarantees=guarantees,
        users=[(user, gpus[user], now[user], waiting[user]) for user in users],
        days=_DAYS,
        day=view.query.get("days", "7"),
        periods=list(_PERIODS),
    )


#: Periods of the cluster's curves, in seconds.
_PERIODS = {"1h": 3600.0, "6h": 6 * 3600.0, "1d": 86_400.0, "7d": 7 * 86_400.0, "30d": 30 * 86_400.0}

#: Periods of the report of past usage, in days.
_DAYS = ("1", "7", "30", "90")


async def past_usage(view: View) -> Response:
    """CPU and GPU hours by account and user, from sreport. Loaded separately, because it is slow."""
    days = view.query.get("days", "7")
    words = ["-nP", "-t", "hours", "-T", "cpu,gres/gpu", "cluster", "AccountUtilizationByUser"]
    words += [f"start=now-{days if days in _DAYS else '7'}days", "end=now"]
    status, out, errors = await commands.run("sreport", *words, token=await view.site.login.token(view.session.user))
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for line in out.splitlines():
        fields = line.split("|")
        if len(fields) == 6 and fields[5].isdecimal():
            rows.setdefault((fields[1], fields[2]), {})[fields[4]] = float(fields[5])
    problem = commands.plain(errors) if status else ""
    return view.render("past_usage.html", title="Past use", rows=rows, problem=problem, query_days=days)


async def health(view: View) -> Response:
    """State of the daemons and the scheduler."""
    pings, database, diag = await asyncio.gather(
        view.rest.get(f"/slurm/{VERSION}/ping", dict),
        _or_none(view, f"/slurmdb/{VERSION}/ping"),
        _or_none(view, f"/slurm/{VERSION}/diag"),
    )
    troubled = [node for node in view.picture.nodes.values() if not node.takes_jobs]
    return view.render(
        "health.html",
        title="Health",
        pings=pings["pings"],
        database=database["pings"] if database else [],
        diag=diag["statistics"] if diag else None,
        troubled=troubled,
        events=list(reversed(view.picture.recent))[:30],
    )
