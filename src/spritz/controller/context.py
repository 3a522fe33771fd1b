"""The parts of a running controller, as the api and the drivers see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.tokens import TokenRequests
    from spritz.controller.api.identity import Identity
    from spritz.controller.blobs import BlobCollector, BlobStore
    from spritz.controller.configuration import Configuration
    from spritz.controller.debug_flags import DebugFlags
    from spritz.controller.diagnostics import Counting
    from spritz.controller.forecasts import Forecasts
    from spritz.controller.journal import Journal
    from spritz.controller.journal_reader import JournalReader
    from spritz.controller.loop import SingleWriter
    from spritz.controller.machines import Machines
    from spritz.controller.nodes import NodeLinks
    from spritz.controller.plugins.submit import SubmitPlugins
    from spritz.controller.rate_limits import RateLimits
    from spritz.controller.scheduling_log import SchedulingLog
    from spritz.controller.shares import Shares
    from spritz.controller.usage_from_accounting import RecordedUsage
    from spritz.core.effects import Effect
    from spritz.core.machine import Machine, Outcome
    from spritz.core.state import State
    from spritz.model.cluster import Caller
    from spritz.model.job import JobSpec
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger
    from spritz.runtime.tasks import Supervisor
    from spritz.runtime.worker import Worker


class MachineView(Protocol):
    """The core (`core.Machine`) to all but the single writer: it can be read and asked, and nothing can be recorded."""

    @property
    def state(self) -> State:
        """To be read, not changed."""
        ...

    def check(self, command: Struct, now: float, caller: Caller = ...) -> Outcome:
        """See `Machine.check`."""
        ...

    def copy(self) -> Machine:
        """See `Machine.copy`."""
        ...

    def next_deadline(self) -> float | None:
        """See `Machine.next_deadline`."""
        ...

    def pending_effects(self, node: str | None = None) -> list[Effect]:
        """See `Machine.pending_effects`."""
        ...

    def image(self) -> bytes:
        """See `Machine.image`."""
        ...


class Context:
    """Set once, by `controller.daemon`. Parts refer to each other through it, so that none needs to be made first."""

    machine: MachineView
    journal: Journal
    #: Reads of the journal while the daemon serves.
    reader: JournalReader
    blobs: BlobStore
    collector: BlobCollector
    writer: SingleWriter
    identity: Identity
    #: Requests that users may make: rl_enable; None for no limits.
    limits: RateLimits | None = None
    #: Callers that are known by a token: auth/jwt.
    tokens: TokenRequests
    nodes: NodeLinks
    #: Which SlurmctldHost this is.
    own_index: int = 0
    #: Other machines; None where the cluster has no keys for them.
    machines: Machines | None = None
    configuration: Configuration
    #: Current priorities and expected starts.
    forecasts: Forecasts
    #: JobSubmitPlugins; None for none.
    submit_plugins: SubmitPlugins | None = None
    #: Fair share of every association.
    shares: Shares
    #: Usage by accounting's records.
    recorded: RecordedUsage
    clock: Clock
    log: Logger
    tasks: Supervisor
    #: When the daemon began to serve, epoch seconds.
    started_at: float
    #: Stop the daemon; True: node daemons are told to stop first.
    request_stop: Callable[[bool], None]
    #: Could placement ever serve this request? (ESLURM name, words) if not.
    check_request: Callable[[JobSpec], tuple[str, str] | None]
    #: The same of components that are to run beside each other.
    check_whole: Callable[[Sequence[JobSpec]], tuple[str, str] | None]
    #: No job is started while this is set (`PauseScheduling`).
    scheduling_paused: bool = False
    #: Figures for sdiag.
    counting: Counting
    #: Subjects that the log tells everything of.
    debug_flags: DebugFlags
    #: What the scheduler decides, in a file of its own.
    scheduling_log: SchedulingLog
    #: Writes log files other than the daemon's own; units are lines.
    log_files: Worker
    #: More counters for `Statistics`: each returns name -> value.
    counters: list[Callable[[], dict[str, float]]]
    #: Awaited when the daemon ends, before its asyncio tasks are cancelled, for a few seconds at most.
    at_end: list[Callable[[], Awaitable[None]]]
    #: The last event that each of these does not need any more: what comes after it stays in the journal.
    events_needed: list[Callable[[], int]]
