"""Has slurmctld's port take HTTP. Imports what it needs when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.controller.metrics.paths import is_http
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from spritz.client.channel import Channel
    from spritz.client.server import Server
    from spritz.controller.context import Context


def begin_http(context: Context, server: Server) -> None:
    """Have the server's connections taken over that begin with HTTP. Raises SpritzError if the extra is missing.

    What it needs is imported when it is needed: at once where metrics are configured. From other machines of a cluster
    with certificates metrics come without TLS as well: scrapers have none of ours.
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
                f"MetricsType=metrics/openmetrics: {error}", hint="pip install 'spritz[metrics]', or take the key out"
            ) from error
        server.plain_too = is_http
    server.otherwise_spoken = take
