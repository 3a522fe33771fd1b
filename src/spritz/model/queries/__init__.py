"""Requests that only read, and their replies. The controller answers them from state, once the last event that they
could show is durable.

`fields` are attribute paths of the record (`"id"`, `"spec.name"`, `"allocation"`); the rows of the reply hold exactly
those values, in that order. Empty `fields` asks for whole records. `unless_version`: the caller has the answer of that
version already; if nothing changed, the reply is `unchanged`.

One file per subject. Import names from here; their files are loaded on first use: a command needs two of forty records,
and creating ten record classes takes a good part of a millisecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.queries.allocations import AllocationGranted as AllocationGranted
    from spritz.model.queries.allocations import AwaitAllocation as AwaitAllocation
    from spritz.model.queries.crontabs import CrontabText as CrontabText
    from spritz.model.queries.crontabs import GetCrontab as GetCrontab
    from spritz.model.queries.daemons import ConfigText as ConfigText
    from spritz.model.queries.daemons import ControllerPongs as ControllerPongs
    from spritz.model.queries.daemons import PauseScheduling as PauseScheduling
    from spritz.model.queries.daemons import Ping as Ping
    from spritz.model.queries.daemons import PingControllers as PingControllers
    from spritz.model.queries.daemons import Pong as Pong
    from spritz.model.queries.daemons import Reconfigure as Reconfigure
    from spritz.model.queries.daemons import SetDampening as SetDampening
    from spritz.model.queries.daemons import SetDebug as SetDebug
    from spritz.model.queries.daemons import SetDebugFlag as SetDebugFlag
    from spritz.model.queries.daemons import SetPowerException as SetPowerException
    from spritz.model.queries.daemons import SetSchedulingLog as SetSchedulingLog
    from spritz.model.queries.daemons import ShowConfig as ShowConfig
    from spritz.model.queries.daemons import Shutdown as Shutdown
    from spritz.model.queries.daemons import TakeOver as TakeOver
    from spritz.model.queries.events import Change as Change
    from spritz.model.queries.events import ChangeBatch as ChangeBatch
    from spritz.model.queries.events import Counters as Counters
    from spritz.model.queries.events import EventBatch as EventBatch
    from spritz.model.queries.events import Statistics as Statistics
    from spritz.model.queries.events import WatchChanges as WatchChanges
    from spritz.model.queries.events import WatchEvents as WatchEvents
    from spritz.model.queries.explanations import ExplainJob as ExplainJob
    from spritz.model.queries.explanations import Explanations as Explanations
    from spritz.model.queries.jobs import AwaitEnd as AwaitEnd
    from spritz.model.queries.jobs import GetScript as GetScript
    from spritz.model.queries.jobs import JobEndedReply as JobEndedReply
    from spritz.model.queries.jobs import JobRows as JobRows
    from spritz.model.queries.jobs import Jobs as Jobs
    from spritz.model.queries.jobs import ListJobs as ListJobs
    from spritz.model.queries.jobs import Script as Script
    from spritz.model.queries.nodes import ListNodes as ListNodes
    from spritz.model.queries.nodes import Nodes as Nodes
    from spritz.model.queries.nodes import NodeView as NodeView
    from spritz.model.queries.partitions import ListPartitions as ListPartitions
    from spritz.model.queries.partitions import Partitions as Partitions
    from spritz.model.queries.priorities import ListPriorities as ListPriorities
    from spritz.model.queries.priorities import Priorities as Priorities
    from spritz.model.queries.steps import ListSteps as ListSteps
    from spritz.model.queries.steps import MeasureSteps as MeasureSteps
    from spritz.model.queries.steps import NodeUsage as NodeUsage
    from spritz.model.queries.steps import Steps as Steps
    from spritz.model.queries.steps import StepUsage as StepUsage
    from spritz.model.queries.steps import StepView as StepView

_FILES = {
    "allocations": "AllocationGranted AwaitAllocation",
    "crontabs": "CrontabText GetCrontab",
    "daemons": "ConfigText ControllerPongs PauseScheduling Ping PingControllers Pong Reconfigure"
    " SetDampening SetDebug SetDebugFlag ShowConfig"
    " SetPowerException SetSchedulingLog Shutdown TakeOver",
    "events": "Change ChangeBatch Counters EventBatch Statistics WatchChanges WatchEvents",
    "explanations": "ExplainJob Explanations",
    "jobs": "AwaitEnd GetScript JobEndedReply JobRows Jobs ListJobs Script",
    "nodes": "ListNodes NodeView Nodes",
    "partitions": "ListPartitions Partitions",
    "priorities": "ListPriorities Priorities",
    "steps": "ListSteps MeasureSteps NodeUsage StepUsage StepView Steps",
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names.split()}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a record on first use."""
        file = _FILE_OF.get(name)
        if file is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        record = getattr(import_module(f"{__name__}.{file}"), name)
        globals()[name] = record
        return record
