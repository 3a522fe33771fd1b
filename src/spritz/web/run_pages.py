"""Runs, sweeps and pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.routing import Route

    from spritz.web.app import Site, View


def routes(site: Site) -> list[Route]:
    """Routes of this module."""
    return []


async def run_of_job(view: View, number: int) -> Any:
    """The run that the job is, or None."""
    return None
