"""Actions of forms, with the viewer's own privileges: slurmctld decides, and pages show its message.

An action answers htmx with a notice for the present page (`HX-Trigger`), and a plain form with a redirect to the page.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from spritz.http.rest import VERSION, RestError
from spritz.web import commands, users
from spritz.web.app import Site, View, form_of, route

#: Verb -> (request for a job, past participle for the notice).
_DONE = {
    "cancel": "Cancelled",
    "hold": "Held",
    "release": "Released",
    "requeue": "Requeued",
    "suspend": "Suspended",
    "resume": "Resumed",
}

Form = dict[str, list[str]]


def routes(site: Site) -> list[Route]:
    return [
        route(path, site.page(page, acts=True), *methods)
        for path, page, methods in (
            ("/jobs/act", act_on_jobs, ("POST",)),
            ("/jobs/{job:number}/update", update_job, ("POST",)),
            ("/nodes/act", act_on_nodes, ("POST",)),
            ("/reservations/create", create_reservation, ("POST",)),
            ("/reservations/change", change_reservation, ("POST",)),
            ("/reservations/delete", delete_reservation, ("POST",)),
            ("/submit", submit_page, ("GET",)),
            ("/submit", submit, ("POST",)),
            ("/jobs/{job:number}/resubmit", resubmit, ("GET",)),
        )
    ]


def is_number(text: str) -> bool:
    """Whether the text is a number of a job."""
    return text.isascii() and text.isdecimal() and len(text) <= 10


def _first(form: Form, name: str) -> str:
    return form.get(name, [""])[0].strip()


def notice(view: View, kind: str, text: str, *, there: str = "", status: int = 200) -> Response:
    """An answer that shows the text to the viewer. `kind`: "good" or "bad". `there`: the page to go to."""
    if view.request.headers.get("hx-request") == "true":
        told = {"notice": {"kind": kind, "text": text, "there": there}}
        return Response(status_code=status, headers={"HX-Trigger": json.dumps(told), "HX-Reswap": "none"})
    if kind == "bad":
        raise RestError(text, 400)
    return RedirectResponse(there or _own_referer(view), 303)


def _own_referer(view: View) -> str:
    """The page of this dashboard on which the form was."""
    try:
        address = urlsplit(view.request.headers.get("referer", ""))
    except ValueError:
        return "/"
    return (address.path + (f"?{address.query}" if address.query else "")) if address.path.startswith("/") else "/"


async def _each(numbers: list[str], act: Callable[[str], Awaitable[None]]) -> tuple[int, list[str]]:
    """The number of successes, and the refusals."""
    done, refused = 0, []
    for number in numbers:
        try:
            await act(number)
            done += 1
        except RestError as error:
            refused.append(f"{number}: {error.message}")
            if not error.status:
                break
    return done, refused


def _report(view: View, verb: str, noun: str, done: int, refused: list[str]) -> Response:
    parts = []
    if done:
        parts.append(f"{verb}: {done} {noun}{'' if done == 1 else 's'}.")
    if refused:
        more = f" … and {len(refused) - 4} more" if len(refused) > 4 else ""
        parts.append(f"Refused: {'; '.join(refused[:4])}{more}")
    return notice(view, "bad" if refused else "good", " ".join(parts) or "Nothing is selected.")


async def act_on_jobs(view: View) -> Response:
    """Apply the form's `verb` to each job in its field `job`."""
    form = await form_of(view)
    verb, numbers = _first(form, "verb"), [word for word in form.get("job", []) if is_number(word)]
    if verb not in _DONE:
        return notice(view, "bad", f"No such action: {verb[:40]}")
    token = await view.site.login.token(view.session.user)

    async def act(number: str) -> None:
        here = f"/slurm/{VERSION}/job/{number}"
        if verb == "cancel":
            await view.rest.send("DELETE", here)
        elif verb in ("hold", "release"):
            await view.rest.send("POST", here, {"hold": verb == "hold"})
        elif verb == "requeue":
            await view.rest.send("GET", f"{here}/requeue")
        else:
            status, _, errors = await commands.run("scontrol", verb, number, token=token)
            if status:
                raise RestError(commands.plain(errors), 400)

    return _report(view, _DONE[verb], "job", *await _each(numbers, act))


#: field of the form -> (field of the request, how its text is read)
_CHANGES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "time_limit": ("time_limit", int),
    "priority": ("priority", int),
    "nice": ("nice", int),
    "partition": ("partition", str),
    "qos": ("qos", str),
    "account": ("account", str),
    "name": ("name", str),
    "comment": ("comment", str),
    "dependency": ("dependency", str),
    "minimum_nodes": ("minimum_nodes", int),
    "reservation": ("reservation", str),
    "constraints": ("constraints", str),
}


async def update_job(view: View) -> Response:
    """Change the fields of a job that the form has filled in."""
    form, number = await form_of(view), view.request.path_params["job"]
    body: dict[str, Any] = {}
    for name, (field, read) in _CHANGES.items():
        if text := _first(form, name):
            try:
                body[field] = read(text)
            except ValueError:
                return notice(view, "bad", f"{name.replace('_', ' ')}: a number is needed, not {text[:40]!r}")
    if not body:
        return notice(view, "bad", "Nothing is filled in, so nothing is changed.")
    try:
        await view.rest.send("POST", f"/slurm/{VERSION}/job/{number}", body)
    except RestError as error:
        return notice(view, "bad", f"Refused: {error.message}")
    return notice(view, "good", f"Changed: {', '.join(body).replace('_', ' ')}.")


async def act_on_nodes(view: View) -> Response:
    """Apply the form's `verb` (drain with `reason`, resume, down) to each node in its field `node`."""
    form = await form_of(view)
    verb, names, reason = _first(form, "verb"), form.get("node", []), _first(form, "reason")
    states = {"drain": ("DRAIN", "Drained"), "resume": ("RESUME", "Resumed"), "down": ("DOWN", "Set down")}
    if verb not in states:
        return notice(view, "bad", f"No such action: {verb[:40]}")
    state, told = states[verb]
    if verb != "resume" and not reason:
        return notice(view, "bad", "Give a reason: other users see it on the node.")

    async def act(name: str) -> None:
        body = {"state": [state], **({"reason": reason} if verb != "resume" else {})}
        await view.rest.send("POST", f"/slurm/{VERSION}/node/{quote(name, safe='')}", body)

    return _report(view, told, "node", *await _each(names, act))


async def create_reservation(view: View) -> Response:
    """Create a reservation. Refuses an existing name, for which slurmctld would change the reservation."""
    form = await form_of(view)
    name = _first(form, "name")
    known = await view.rest.get(f"/slurm/{VERSION}/reservations", dict)
    if name and any(reservation["name"] == name for reservation in known["reservations"]):
        return notice(view, "bad", f"Reservation {name} exists already: change it, or choose another name.")
    fields = _reservation(form)
    if isinstance(fields, str):
        return notice(view, "bad", fields)
    body = {"duration": _number(60), "start_time": _number(view.now), **fields}
    return await _reserve(view, body, f"Reserved{': ' + name if name else ''}.")


async def change_reservation(view: View) -> Response:
    """Change the fields of a reservation that the form has filled in."""
    form = await form_of(view)
    fields = _reservation(form)
    if isinstance(fields, str):
        return notice(view, "bad", fields)
    changed = [name.replace("_", " ") for name in fields if name not in ("name", "flags")]
    if not changed:
        return notice(view, "bad", "Nothing is filled in, so nothing is changed.")
    return await _reserve(view, fields, f"Changed: {', '.join(changed)}.")


async def _reserve(view: View, body: dict[str, Any], told: str) -> Response:
    try:
        await view.rest.send("POST", f"/slurm/{VERSION}/reservation", body)
    except RestError as error:
        return notice(view, "bad", f"Refused: {error.message}")
    return notice(view, "good", told, there="/reservations")


def _reservation(form: Form) -> dict[str, Any] | str:
    """The request's fields that are filled in, or a message about a bad one."""
    body: dict[str, Any] = {"flags": ["MAINT"] if _first(form, "maintenance") else []}
    for field in ("name", "partition", "comment"):
        if text := _first(form, field):
            body[field] = text
    for field in ("users", "accounts", "node_list"):
        if text := _first(form, field):
            body[field] = text.split(",")
    try:
        if text := _first(form, "duration"):
            body["duration"] = _number(int(text))
        if text := _first(form, "node_count"):
            body["node_count"] = _number(int(text))
    except ValueError:
        return "Duration (minutes) and number of nodes must be numbers."
    if text := _first(form, "start_time"):
        try:
            body["start_time"] = _number(datetime.fromisoformat(text).timestamp())
        except (ValueError, OverflowError, OSError):
            return f"Begins: {text[:40]!r} is not a time such as 2026-11-24T10:00."
    return body


def _number(value: float) -> dict[str, Any]:
    return {"set": True, "number": int(value)}


async def delete_reservation(view: View) -> Response:
    form = await form_of(view)
    name = _first(form, "name")
    try:
        await view.rest.send("DELETE", f"/slurm/{VERSION}/reservation/{quote(name, safe='')}")
    except RestError as error:
        return notice(view, "bad", f"Refused: {error.message}")
    return notice(view, "good", f"Deleted: {name}.", there="/reservations")


# -- submission

_SCRIPT = "#!/bin/bash\n\nsrun hostname\n"

#: field of the form -> option of sbatch
_OPTIONS = {
    "name": "--job-name",
    "partition": "--partition",
    "account": "--account",
    "nodes": "--nodes",
    "tasks": "--ntasks",
    "cpus": "--cpus-per-task",
    "gpus": "--gpus-per-node",
    "memory": "--mem",
    "time": "--time",
    "array": "--array",
    "dependency": "--dependency",
    "output": "--output",
    "directory": "--chdir",
}


async def submit_page(view: View) -> Response:
    """The empty form for a submission."""
    return _form(view, {}, _SCRIPT)


def _form(
    view: View, values: dict[str, str], script: str, *, answer: str = "", refused: str = "", status: int = 200
) -> Response:
    partitions = sorted({name for node in view.picture.nodes.values() for name in node.partitions})
    return view.render(
        "submit.html", status, title="Submit a job", values=values, script=script, answer=answer, refused=refused,
        partitions=partitions,
    )  # fmt: skip


async def resubmit(view: View) -> Response:
    """The form, filled in with a job's script and options."""
    number = view.request.path_params["job"]
    script = await view.rest.get(f"/spritz/v1/script/{number}", dict)
    job = view.picture.jobs.get(number)
    values: dict[str, str] = {}
    if job is not None:
        detail = (await view.rest.get(f"/slurm/{VERSION}/job/{number}", dict))["jobs"][0]
        minutes = job.time_limit_minutes
        values = {
            "name": job.name,
            "partition": job.partition,
            "nodes": str(job.nodes_min) if job.nodes_min > 1 else "",
            "tasks": str(job.tasks) if job.tasks > 1 else "",
            "cpus": str(job.cpus_per_task or ""),
            "gpus": str(sum(gres.count for gres in job.asked_gpus_per_node) or ""),
            "time": str(minutes) if minutes is not None and minutes < 0xFFFFFFFE else "",
            "directory": detail.get("current_working_directory", ""),
        }
    return _form(view, values, script["script"])


async def submit(view: View) -> Response:
    """Submit the form's script with sbatch, or test it (`test`: --test-only)."""
    form = await form_of(view)
    values = {name: _first(form, name) for name in (*_OPTIONS, "more")}
    script = form.get("script", [""])[0].replace("\r\n", "\n")
    words = [f"{option}={values[name]}" for name, option in _OPTIONS.items() if values[name]]
    try:
        words += shlex.split(values["more"])
    except ValueError as error:
        return _form(view, values, script, refused=f"More options: {error}", status=422)
    try:
        # sbatch reads files that its options name, and passes its environment to the job. So it must not run as root,
        # nor have the viewer's token, which would expire while the job runs.
        user = await users.account(view)
    except RestError as error:
        return _form(view, values, script, refused=error.message, status=422)
    testing = _first(form, "verb") == "test"
    words = (["--test-only"] if testing else ["--parsable"]) + words
    # From the viewer's home, as after a login: a job whose directory is / cannot write its output. The process of the
    # viewer enters it, since root may not where homes are on NFS.
    at_home = ("-c", 'cd 2>/dev/null; exec "$0" "$@"', commands.path_of("sbatch"))
    status, out, errors = await commands.run("sh", *at_home, *words, given=script, directory="/", user=user)
    message = commands.plain(errors)
    if status:
        return _form(view, values, script, refused=message or f"sbatch ended with status {status}", status=422)
    if testing:
        return _form(view, values, script, answer=message or out.strip() or "It can run.")
    number = out.strip().partition(";")[0]
    return notice(view, "good", f"Submitted: job {number}. {message}".strip(), there=f"/jobs/{number}")
