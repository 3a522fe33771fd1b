"""Requests that schemathesis makes of a published document: none crashes slurmrestd, every answer is of its document.

A few of each operation of the newest version; `make rest` sends many, of every version (SPRITZ_REST_EXAMPLES).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from spritz.presentation.json.documents import VERSIONS, document
from tests.e2e.rest_site import Site, site, token
from tests.unit.rest.schema import schema_of

__all__ = ["site"]

EXAMPLES = int(os.environ.get("SPRITZ_REST_EXAMPLES", "1"))

#: What an answer may be: done, a refusal of Slurm's, or a request that is not of the document.
STATUSES = (200, 400, 401, 404, 413, 415, 422, 500, 502)
#: Slurm internal error: a fault of ours
INTERNAL = 2090


@pytest.mark.parametrize("version", VERSIONS if EXAMPLES > 1 else VERSIONS[-1:])
def test_no_request_of_the_document_crashes_it(site: Site, version: str) -> None:
    schema = schemathesis.openapi.from_dict(document(version))
    profile = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=EXAMPLES == 1,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    headers = {"X-SLURM-USER-TOKEN": token()}
    with site.tcp(**headers) as client:
        for found in schema.get_all_operations():
            operation: Any = found.ok()  # type: ignore[union-attr]  # every operation can be read
            answers = operation.definition.raw["responses"]["200"]["content"]["application/json"]["schema"]
            if "reconfigure" not in operation.path:
                profile(given(case=operation.as_strategy())(_sender(client, version, answers)))()


def _sender(client: httpx.Client, version: str, answers: dict[str, Any]) -> Callable[..., None]:
    def send(case: Any) -> None:
        request = case.as_transport_kwargs(base_url=str(client.base_url))
        answer = client.request(
            request["method"], request["url"], params=request.get("params"), json=request.get("json"), timeout=60
        )
        assert answer.status_code in STATUSES, (case.as_curl_command(), answer.text)
        if answer.headers["content-type"] == "application/json":
            jsonschema.validate(answer.json(), schema_of(version, answers))
            numbers = [error["error_number"] for error in answer.json()["errors"]]
            assert INTERNAL not in numbers, case.as_curl_command()
            assert bool(numbers) is (answer.status_code != 200), case.as_curl_command()

    return send
