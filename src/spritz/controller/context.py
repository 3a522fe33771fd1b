"""The parts of a running controller, for `daemon` alone: each part declares what it uses (`needs`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from spritz.controller.needs import MachineView

if TYPE_CHECKING:
    from spritz.client.channel.token_requests import TokenRequests
    from spritz.controller.callers.identity import Identity
    from spritz.controller.callers.rate_limits import RateLimits
    from spritz.controller.configuration import Configuration
    from spritz.controller.debug_flags import DebugFlags
    from spritz.controller.diagnostics import Counting
    from spritz.controller.journal.blobs import BlobCollector, BlobStore
    from spritz.controller.journal.contract import Journal
    from spritz.controller.journal.reader import JournalReader
    from spritz.controller.nodes.links import NodeLinks
    from spritz.controller.nodes.machines import Machines
    from spritz.controller.plugins.submit import SubmitPlugins
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.controller.scheduler.log import SchedulingLog
    from spritz.controller.scheduler.shares import Shares
    from spritz.controller.scheduler.usage_from_accounting import RecordedUsage
    from spritz.controller.writer.loop import SingleWriter
    from spritz.model.job.record import JobSpec
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger
    from spritz.runtime.tasks import Supervisor
    from spritz.runtime.worker import Worker


class Context:
    """Filled once, by `controller.daemon`. The parts find each other here, so they can be created in any order."""

    machine: MachineView
    journal: Journal
    #: reads of the journal while the daemon serves
    reader: JournalReader
    blobs: BlobStore
    collector: BlobCollector
    writer: SingleWriter
    identity: Identity
    #: limits on users' requests (rl_enable); None: no limits
    limits: RateLimits | None = None
    #: callers identified by a token (auth/jwt)
    tokens: TokenRequests
    nodes: NodeLinks
    #: index of this controller's SlurmctldHost
    own_index: int = 0
    #: other machines; None if the cluster has no keys for them
    machines: Machines | None = None
    configuration: Configuration
    #: current priorities and expected starts
    forecasts: Forecasts
    #: JobSubmitPlugins; None: none
    submit_plugins: SubmitPlugins | None = None
    #: fair share of every association
    shares: Shares
    #: usage by accounting's records
    recorded: RecordedUsage
    clock: Clock
    log: Logger
    tasks: Supervisor
    #: when the daemon began to serve, epoch seconds
    started_at: float
    #: stops the daemon; True: tells node daemons to stop first
    request_stop: Callable[[bool], None]
    #: Whether any set of nodes could ever serve this request; if not, (ESLURM name, text).
    check_request: Callable[[JobSpec], tuple[str, str] | None]
    #: the same for all components of a heterogeneous job together
    check_whole: Callable[[Sequence[JobSpec]], tuple[str, str] | None]
    #: no job is started while this is set (`PauseScheduling`)
    scheduling_paused: bool = False
    #: figures for sdiag
    counting: Counting
    #: subjects that are logged in full
    debug_flags: DebugFlags
    #: the scheduler's decisions, in a file of their own
    scheduling_log: SchedulingLog
    #: writes log files other than the daemon's own; units are lines
    log_files: Worker
    #: more counters for `Statistics`: each function returns name -> value
    counters: list[Callable[[], dict[str, float]]]
    #: awaited when the daemon ends, before its asyncio tasks are cancelled, for a few seconds at most
    at_end: list[Callable[[], Awaitable[None]]]
    #: Each returns the last event that its owner no longer needs: later events stay in the journal.
    events_needed: list[Callable[[], int]]
