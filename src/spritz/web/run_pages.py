"""Runs, sweeps and pipelines: pages from the JSON output of `spritz runs`, `show`, `sweeps` and `pipeline`.

Their files are in the users' home directories, so on a site the commands run as the viewer (`users`).
"""

from __future__ import annotations

import math
import os
import time
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spritz.http.rest import RestError
from spritz.web import commands, curves, users
from spritz.web.actions import notice
from spritz.web.app import Site, View, form_of, route
from spritz.web.details import detail_of, owner_of, submitted_at
from spritz.web.words import number

#: Most runs in the list, and in a comparison.
RUNS_MAX, COMPARED_MAX = 200, 12

#: Most files that the page of a run lists.
FILES_MAX = 200

#: Time limit in seconds of a request to pause, in which the run saves its state.
PAUSE_SECONDS = 900.0

#: Seconds by which the clocks of a login host and of slurmctld may differ.
_CLOCK_SECONDS = 300.0

#: Seconds for which an answer is cached: several parts of a page need the same.
_FRESH_SECONDS = 2.0


def routes(site: Site) -> list[Route]:
    return [
        route(path, site.page(page))
        for path, page in (
            ("/runs", runs),
            ("/runs/compare", compare),
            ("/runs/compare.json", compared_series),
            ("/runs/{name}", run_page),
            ("/runs/{name}/series.json", series),
            ("/runs/{name}/diff", difference),
            ("/runs/{name}/files", files_page),
            ("/runs/{name}/file", file),
            ("/sweeps", sweeps),
            ("/sweeps/{name}", sweep_page),
            ("/pipelines", pipelines),
            ("/pipelines/{name}", pipeline_page),
        )
    ] + [route("/runs/{name}/act", site.page(act_on_run, acts=True), "POST")]


async def act_on_run(view: View) -> Response:
    """Apply the form's `verb` (pause, resume, rerun) to a run."""
    form = await form_of(view)
    verb, name = form.get("verb", [""])[0], view.request.path_params["name"]
    if verb not in ("pause", "resume", "rerun"):
        return notice(view, "bad", f"No such action: {verb[:40]}")
    try:
        user = await users.account(view)
    except RestError as error:
        return notice(view, "bad", error.message)
    status, out, errors = await commands.run("spritz", verb, _safe(name), user=user, seconds=PAUSE_SECONDS)
    view.site.kept.clear()
    message = commands.plain(f"{errors}\n{out}") or f"spritz {verb} ended with status {status}"
    return notice(view, "bad" if status else "good", message[:500])


async def _ask(view: View, *words: str) -> Any:
    """The JSON output of a `spritz` command, cached for two seconds. Raises RestError."""
    user = await users.account(view)
    question = (view.session.user, *words)
    known = view.site.kept.get(question)
    if known is not None and time.monotonic() - known[0] < _FRESH_SECONDS:
        return known[1]
    reply = await commands.answer("spritz", *words, user=user)
    if len(view.site.kept) > 200:
        view.site.kept.clear()
    view.site.kept[question] = (time.monotonic(), reply)
    return reply


async def run_of_job(view: View, detail: dict[str, Any]) -> Any:
    """The run of a job, or None."""
    try:
        listing = await _ask(view, "runs", "--json", "--limit", "500")
    except RestError:
        return None
    return next((run for run in listing["runs"] if is_of_job(run, detail)), None)


def is_of_job(run: dict[str, Any], detail: dict[str, Any]) -> bool:
    """Whether this cluster's job is the run's.

    The store has the runs of all clusters of a user, and numbers of jobs repeat. The name of a run is its job's, or
    begins with its array's. Where the user has named the job otherwise, its output or script is in the run's directory.
    """
    if run["job_id"].partition("_")[0] != str(detail["job_id"]) or owner_of(detail) != run.get(
        "owner", owner_of(detail)
    ):
        return False
    if submitted_at(detail) < run["created_at"] - _CLOCK_SECONDS:
        return False
    name, directory = str(detail.get("name") or ""), f"{run['directory']}/"
    of_array = "_" in run["job_id"] and bool(name) and run["name"].startswith((f"{name}.", f"{name}-"))
    if of_array or name == run["name"]:
        return True
    return directory in f"{detail.get('stdout_expanded') or ''} {detail.get('submit_line') or ''}"


async def _job_of_run(view: View, index: dict[str, Any]) -> int:
    """Number of the run's job in this cluster; 0 if it has none, or is a job of another cluster."""
    number = index["job_id"].partition("_")[0]
    if not (number.isascii() and number.isdecimal() and len(number) <= 10):
        return 0
    try:
        return int(number) if is_of_job(index, await detail_of(view, int(number))) else 0
    except RestError:
        return 0


def _safe(name: str) -> str:
    """The name, if it cannot be an option of a command. Raises RestError."""
    return name if not name.startswith("-") else f"./{name}"


async def runs(view: View) -> Response:
    """The list of runs that match the query."""
    query = view.query
    words = ["runs", "--json", "--limit", str(RUNS_MAX)]
    for name in ("tag", "state", "group", "branch"):
        if query.get(name):
            words += [f"--{name}={query[name]}"]
    if query.get("metric"):
        words.append(f"--metric={query['metric']}")
    if query.get("q"):
        words += ["--", query["q"]]
    problem = ""
    try:
        rows = (await _ask(view, *words))["runs"]
    except RestError as error:
        rows, problem = [], error.message
    metrics = sorted({name for run in rows for name in run["metrics"]})
    return view.render(
        "runs.html",
        title="Runs",
        runs=rows,
        problem=problem,
        metrics=metrics[:4],
        tags=sorted({tag for run in rows for tag in _tags(run)}),
    )


def _tags(run: dict[str, Any]) -> list[str]:
    tags = run["tags"]
    return tags if isinstance(tags, list) else []


async def run_page(view: View) -> Response:
    name = view.request.path_params["name"]
    record = await _ask(view, "show", "--json", _safe(name))
    run, index = record["run"], record["index"]
    return view.render(
        "run.html",
        title=f"Run {run['name']}",
        run=run,
        index=index,
        events=record["events"],
        number=await _job_of_run(view, index),
        python=run["surroundings"].get("python", {}),
    )


async def files_page(view: View) -> Response:
    """The files that a run wrote, for its page."""
    name, problem = view.request.path_params["name"], ""
    listing: dict[str, Any] = {"files": [], "count": 0, "size": 0}
    try:
        listing = await _ask(view, "files", "--json", f"--limit={FILES_MAX}", "--", _safe(name))
    except RestError as error:
        problem = error.message
    rows = [{**written, "href": _file_address(name, written["path"])} for written in listing["files"]]
    return view.render(
        "files.html", title=f"Files of {name}", name=name, problem=problem, files=rows, count=listing["count"],
        size=listing["size"],
    )  # fmt: skip


def _file_address(name: str, path: str) -> str:
    """Where a file can be downloaded; "" for a name that is no text, which addresses cannot have."""
    try:
        return f"/runs/{quote(name, safe='')}/file?{urlencode({'path': path})}"
    except UnicodeEncodeError:
        return ""


async def file(view: View) -> Response:
    """A file of a run: `path` in the query, below the code of its directory. Raises RestError."""
    record = await _ask(view, "show", "--json", _safe(view.request.path_params["name"]))
    folder = os.path.join(record["index"]["directory"], "code")
    return await view.site.downloads.start(view, folder, view.query.get("path", ""))


async def difference(view: View) -> Response:
    """The differences between two runs: command, code, environment, result."""
    name, other = view.request.path_params["name"], view.query.get("to", "")
    status, out, errors = await commands.run(
        "spritz", "diff", _safe(other), _safe(name), user=await users.account(view)
    )
    return view.render("diff.html", title=f"{other} and {name}", text=out if status in (0, 1) and out else errors)


def _figures(record: dict[str, Any], label: str = "") -> dict[str, dict[str, Any]]:
    """Figures by name: unit, kind of x axis, and curves (name, xs, ys)."""
    figures: dict[str, dict[str, Any]] = {}
    lines: dict[str, tuple[list[float], list[float]]] = {}
    by_step: dict[str, bool] = {}
    for point in record["points"]:
        if not math.isfinite(point["value"]):
            continue
        name = point["name"]
        by_step.setdefault(name, point["step"] is not None)
        xs, ys = lines.setdefault(name, ([], []))
        x = point["step"] if by_step[name] and label else point["at"]
        xs.append(x if x is not None else len(xs))
        ys.append(point["value"])
    for name, (xs, ys) in lines.items():
        figures[name] = {"unit": "", "x": "step" if label else "time", "curves": [(label or name, xs, ys)]}
    if not label:
        for curve in record["series"]:
            if curve["what"] == "metric":
                continue
            title = curve["what"] if curve["what"].startswith("GPU") else curve["what"].capitalize()
            title = "CPUs" if curve["what"] == "CPUs" else title
            figure = figures.setdefault(title, {"unit": curve["unit"], "x": "time", "curves": []})
            figure["curves"].append((curve["owner"], curve["times"], curve["values"]))
    return figures


async def series(view: View) -> Response:
    """Curves of a run as JSON: its metrics, and its usage over time."""
    record = await _ask(view, "show", "--usage", "--json", _safe(view.request.path_params["name"]))
    return JSONResponse({"figures": curves.drawn(_figures(record))}, headers={"Cache-Control": "no-store"})


def _names(view: View) -> list[str]:
    names = view.request.query_params.getlist("run")
    return list(dict.fromkeys(name for name in names if name))[:COMPARED_MAX]


async def compare(view: View) -> Response:
    """Two runs or more, named in the query, side by side. Raises RestError (400) for fewer."""
    names = _names(view)
    if len(names) < 2:
        raise RestError("Select two runs or more to compare.", 400)
    all_runs = {run["name"]: run for run in (await _ask(view, "runs", "--json", "--limit", "0"))["runs"]}
    chosen = [all_runs[name] for name in names if name in all_runs]
    records = [(await _ask(view, "show", "--json", _safe(run["name"])))["run"] for run in chosen]
    rows: list[tuple[str, list[str]]] = []
    for label, values in (
        ("State", [run["state"] for run in chosen]),
        ("Command", [" ".join(record["command"]) for record in records]),
        ("Commit", [run["commit_id"][:12] + ("+" if run["changed"] else "") for run in chosen]),
        ("Branch", [run["branch"] or "" for run in chosen]),
        ("Tags", [", ".join(_tags(run)) for run in chosen]),
    ):
        rows.append((label, values))
    for name in sorted({key for record in records for key in record["parameters"]}):
        rows.append((name, [str(record["parameters"].get(name, "")) for record in records]))
    for name in sorted({key for run in chosen for key in run["metrics"]}):
        rows.append((name, [_number(run["metrics"].get(name)) for run in chosen]))
    lines = [
        {
            "name": run["name"],
            "values": {**record["parameters"], **run["metrics"]},
        }
        for run, record in zip(chosen, records, strict=True)
    ]
    return view.render(
        "compare.html",
        title="Comparison",
        names=[run["name"] for run in chosen],
        rows=rows,
        parallel=parallel(lines),
        address=view.request.url.query,
    )


def _number(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else ""


async def compared_series(view: View) -> Response:
    """Curves of several runs by step, as JSON."""
    figures: dict[str, dict[str, Any]] = {}
    for name in _names(view):
        record = await _ask(view, "show", "--usage", "--json", _safe(name))
        for title, figure in _figures(record, name).items():
            figures.setdefault(title, {**figure, "curves": []})["curves"] += figure["curves"]
    return JSONResponse({"figures": curves.drawn(figures)}, headers={"Cache-Control": "no-store"})


def parallel(lines: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Parallel coordinates: axes as (name, position in percent, minimum and maximum as text), lines as (name, points).

    Text values are in alphabetical order; a line without a value on an axis is left out.
    """
    names = list(dict.fromkeys(name for line in lines for name in line["values"]))
    axes = []
    for name in names:
        values = [line["values"].get(name) for line in lines]
        known = [value for value in values if value is not None]
        if len(set(map(str, known))) < 2 or len(known) < len(lines):
            continue
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
            low, high = min(known), max(known)
            log = low > 0 and high / low > 50
            scale = [
                (math.log(value / low) / math.log(high / low)) if log else (value - low) / (high - low)
                for value in known
            ]
            axes.append((name, _number(float(low)), _number(float(high)), scale))
        else:
            words = sorted(set(map(str, known)))
            scale = [words.index(str(value)) / (len(words) - 1) for value in known]
            axes.append((name, words[0], words[-1], scale))
    if len(axes) < 2 or not lines:
        return None
    step = 880 / (len(axes) - 1)
    return {
        "axes": [(name, 60 + place * step, low, high) for place, (name, low, high, _) in enumerate(axes)],
        "lines": [
            (
                line["name"],
                " ".join(f"{60 + place * step:.1f},{250 - 210 * axis[3][row]:.1f}" for place, axis in enumerate(axes)),
                axes[-1][3][row],
            )
            for row, line in enumerate(lines)
        ],
    }


async def sweeps(view: View) -> Response:
    problem = ""
    try:
        rows = (await _ask(view, "sweeps", "--json", "--limit", "100"))["sweeps"]
    except RestError as error:
        rows, problem = [], error.message
    return view.render("sweeps.html", title="Sweeps", sweeps=rows, problem=problem)


async def sweep_page(view: View) -> Response:
    """The page of a sweep, with its trials."""
    name = view.request.path_params["name"]
    status = await _ask(view, "sweep", "--status", _safe(name), "--json")
    metric = status["metric"]
    trials = status["trials"]
    trials.sort(key=lambda trial: (trial["value"] is None, trial["value"] or 0, trial["name"]))
    if status["direction"] == "maximize":
        trials.sort(key=lambda trial: (trial["value"] is None, -(trial["value"] or 0)))
    lines = [
        {"name": trial["name"], "values": {**trial["parameters"], metric or "value": trial["value"]}}
        for trial in trials
        if trial["value"] is not None
    ]
    return view.render(
        "sweep.html",
        title=f"Sweep {name}",
        sweep=status,
        trials=trials,
        parallel=parallel(lines),
        parameters=list(dict.fromkeys(key for trial in trials for key in trial["parameters"])),
    )


async def pipelines(view: View) -> Response:
    problem = ""
    try:
        rows = (await _ask(view, "pipeline", "list", "--json"))["pipelines"]
    except RestError as error:
        rows, problem = [], error.message
    return view.render("pipelines.html", title="Pipelines", pipelines=rows, problem=problem)


async def pipeline_page(view: View) -> Response:
    """The page of a pipeline, drawn as a graph."""
    name = view.request.path_params["name"]
    record = await _ask(view, "pipeline", "show", _safe(name), "--json")
    boxes, edges, width, height = graph(record["steps"])
    return view.render(
        "pipeline.html", title=f"Pipeline {name}", pipeline=record, boxes=boxes, edges=edges, width=width, height=height
    )


#: Size of a box in the graph, and gaps between boxes, in pixels.
_BOX, _TALL, _ACROSS, _DOWN = 190, 52, 70, 22


def graph(steps: list[dict[str, Any]]) -> tuple[list[Any], list[str], int, int]:
    """(boxes as (x, y, step), edges as SVG paths, width, height). A step is to the right of all steps that it needs."""
    needs = {step["name"]: list(step["needs"]) for step in steps}
    level: dict[str, int] = {}
    for _ in steps:  # the longest path has no more edges than there are steps
        for name, sources in needs.items():
            level[name] = max((level.get(source, 0) + 1 for source in sources if source in needs), default=0)
    places: dict[str, tuple[int, int]] = {}
    rows: dict[int, int] = {}
    for step in steps:
        column = level.get(step["name"], 0)
        row = rows.get(column, 0)
        rows[column] = row + 1
        places[step["name"]] = (10 + column * (_BOX + _ACROSS), 10 + row * (_TALL + _DOWN))
    edges = []
    for name, sources in needs.items():
        for source in sources:
            if source in places:
                x, y = places[source][0] + _BOX, places[source][1] + _TALL // 2
                to_x, to_y = places[name][0], places[name][1] + _TALL // 2
                middle = (x + to_x) // 2
                edges.append(f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}")
    width = 20 + max((x for x, _ in places.values()), default=0) + _BOX
    height = 20 + max((y for _, y in places.values()), default=0) + _TALL
    return [(*places[step["name"]], step) for step in steps], edges, width, height
