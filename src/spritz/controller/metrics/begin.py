"""Makes slurmctld's port accept HTTP. Imports the optional modules only when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.extras import pip_install
from spritz.model.errors import SpritzError
from spritz.wire.frames import is_http

if TYPE_CHECKING:
    from spritz.client.channel.channel import Channel
    from spritz.client.channel.server import Server
    from spritz.controller.metrics.pages import Paging


def begin_http(context: Paging, server: Server) -> None:
    """Hand connections that begin with HTTP to the metrics endpoint. Raises SpritzError if the extra is missing.

    The optional modules are imported at once if metrics are configured, else with the first request. In a cluster with
    certificates, metrics are served to other machines without TLS too: scrapers have no certificates of the cluster.
    """
    endpoint = None

    def take(channel: Channel, data: bytes) -> bool:
        nonlocal endpoint
        if not is_http(data):
            return False
        if endpoint is None:
            try:
                from spritz.controller.metrics.http import Endpoint
            except ImportError:
                return False
            endpoint = Endpoint(context)
        endpoint.take(channel, data)
        return True

    if context.configuration.loaded.settings.text("MetricsType") == "metrics/openmetrics":
        try:
            from spritz.controller.metrics.http import Endpoint

            endpoint = Endpoint(context)
            endpoint.pages()
        except ImportError as error:
            raise SpritzError(
                f"MetricsType=metrics/openmetrics: {error}", hint=f"{pip_install('metrics')}, or remove the key"
            ) from error
        server.plain_too = is_http
    server.otherwise_spoken = take
