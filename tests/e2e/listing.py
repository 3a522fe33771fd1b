"""What tests ask a controller most often."""

from __future__ import annotations

from spritz.model.queries.jobs import JobRows, ListJobs
from tests.e2e.controller_process import ControllerProcess


def jobs_by_name(controller: ControllerProcess) -> dict[str, tuple[int, str]]:
    """Name -> number and state of every job."""
    with controller.connect() as connection:
        request = ListJobs(fields=("spec.name", "id", "state"))
        return {
            str(name): (int(str(number)), str(state))
            for piece in connection.stream(request, JobRows)
            for name, number, state in piece.rows
        }
