"""A job in Slurm's JSON form, as slurmctld or accounting has it; for a shared link, only the job that was shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.http.rest import VERSION, RestError

if TYPE_CHECKING:
    from spritz.web.app import View


async def detail_of(view: View, number: int) -> dict[str, Any]:
    """The job: from the controller, or from accounting if the controller has forgotten it. Raises RestError.

    `now`: whether the controller has it, since both have different fields.
    """
    try:
        answer = await view.rest.get(f"/slurm/{VERSION}/job/{number}", dict)
        detail = {"now": True, **answer["jobs"][0]} if answer["jobs"] else {}
    except RestError as error:
        if error.status != 404:
            raise
        detail = {}
    if not detail:
        answer = await view.rest.get(f"/slurmdb/{VERSION}/job/{number}", dict)
        detail = {"now": False, **answer["jobs"][-1]} if answer["jobs"] else {}
    if not detail or not _is_shared(view, detail):
        raise RestError(f"There is no job {number}.", 404)
    return detail


def owner_of(detail: dict[str, Any]) -> str:
    """Name of the job's user."""
    return str(detail["user_name"] if detail["now"] else detail["user"])


def submitted_at(detail: dict[str, Any]) -> float:
    """When the job was submitted, or last requeued; whole seconds since the epoch."""
    if detail["now"]:
        return float((detail.get("submit_time") or {}).get("number") or 0)
    return float(detail["time"]["submission"])


def _is_shared(view: View, detail: dict[str, Any]) -> bool:
    """Whether the viewer may see this job by its shared link, if it has one: an earlier job may have had the number.

    A requeued job has another time of submission.
    """
    share = view.session.share
    if share is None:
        return True
    restarts = detail.get("restart_cnt") or 0
    return owner_of(detail) == share.owner and (restarts > 0 or abs(submitted_at(detail) - share.submitted_at) < 2)
