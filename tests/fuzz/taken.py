"""Which requests the daemons take: the tables of their handlers, without the daemons."""

from __future__ import annotations

from unittest.mock import MagicMock

from msgspec import Struct

from spritz.accounting.admin import AdminRequests
from spritz.accounting.api import Api
from spritz.accounting.associations.requests import BookRequests
from spritz.accounting.rollup.requests import UsageRequests
from spritz.controller.api.table import handlers
from spritz.model.accounting.records import FlushEvents
from spritz.model.limits.records import ChangePolicy, SetPolicy
from spritz.model.node_daemon import launch
from spritz.node.agent import ORDERS

Requests = frozenset[type[Struct]]


def of_controller() -> Requests:
    """What slurmctld takes from commands and node daemons."""
    return frozenset(handlers(MagicMock(), MagicMock()))


def of_database() -> Requests:
    """What slurmdbd takes."""
    api, ways = MagicMock(), (MagicMock(), MagicMock())
    api.admin = AdminRequests(api, ways[0], MagicMock())
    api.usage = UsageRequests(api, *ways)
    return frozenset(Api.handlers(api)) | frozenset(BookRequests(api, *ways).handlers())


def of_others() -> Requests:
    """What slurmd takes from slurmctld, and slurmctld from slurmdbd."""
    orders = (launch.MeasureStep, launch.PingNode, launch.ReloadNode, launch.RebootNode, launch.StopDaemon)
    return frozenset({*ORDERS, *orders, FlushEvents, SetPolicy, ChangePolicy})
