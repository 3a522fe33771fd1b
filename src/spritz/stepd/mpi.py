"""Starts the server for a step's MPI programs: PMI, PMIx, or none. Imports only the one needed.

Source: srun(1) --mpi.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.stepd import protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.stepd.clients.group import ClientGroup
    from spritz.stepd.pmi import PmiServer
    from spritz.stepd.pmix.server_process import PmixServer
    from spritz.stepd.reactor import Reactor
    from spritz.stepd.spec import SupervisorSpec


class Mpi:
    """The servers of the step. `terminate(seconds)` ends it; `say(text)` tells the user why.

    `ending()`: the step is being ended, so vanishing tasks are expected.
    """

    def __init__(
        self,
        spec: SupervisorSpec,
        spool: str,
        reactor: Reactor,
        clients: ClientGroup,
        *,
        terminate: Callable[[float], None],
        say: Callable[[str], None],
        ending: Callable[[], bool],
    ) -> None:
        self._spec = spec
        self._spool = spool
        self._reactor = reactor
        self._clients = clients
        self._terminate = terminate
        self._say = say
        self._ending = ending
        self._pmix: PmixServer | None = None

    def start(self) -> PmiServer | PmixServer | None:
        """The server to announce to tasks. Raises OSError if it cannot start."""
        spec, clients = self._spec, self._clients
        if spec.pmi is not None:
            from spritz.stepd.pmi import PmiServer

            pmi = PmiServer(spec.pmi, len(spec.tasks), self._reactor, clients.tell_primary, self._abort)
            clients.on_pmi = lambda payload, last: pmi.take(payload, last=last)
            return pmi
        if spec.pmix is not None:
            from spritz.stepd.pmix.server_process import PmixServer

            try:
                pmix = PmixServer(
                    spec,
                    spec.pmix,
                    self._spool,
                    self._reactor,
                    emit=clients.tell_primary,
                    abort=self._abort_pmix,
                    failed=self._failed,
                )
            except OSError:
                # Tasks of other nodes would wait for those of this one.
                clients.tell_primary(protocol.frame(protocol.PMI_ABORT))
                raise
            clients.on_pmi = lambda payload, last: pmix.take(payload, last=last)
            self._pmix = pmix
            return pmix
        return None

    @property
    def pid(self) -> int:
        """A process of ours next to the tasks; 0 if there is none."""
        return self._pmix.pid if self._pmix is not None else 0

    def end(self) -> None:
        """End the servers, since no task is left. May be called repeatedly."""
        if self._pmix is not None:
            self._pmix.end()

    def reaped(self) -> None:
        """The process of the PMIx server has ended."""
        if self._pmix is not None:
            self._pmix.reaped()
            self._pmix = None

    def _abort(self) -> None:
        """A task aborts the step. The client ends all tasks at once; the caller gets time to exit."""
        self._clients.tell_primary(protocol.frame(protocol.PMI_ABORT))

    def _abort_pmix(self, rank: int, status: int | None) -> None:
        """A task aborts the step, or is lost. The client ends all tasks at once; the caller gets time to exit."""
        if self._ending():
            return
        if status is None:
            self._say(f"error: mpi/pmix: task {rank} is gone, and has not called PMIx_Finalize: the step is ended")
        self._clients.tell_primary(protocol.frame(protocol.PMI_ABORT, rank, protocol.pack_status(status or 0)))

    def _failed(self, text: str) -> None:
        if not self._ending():
            self._say(f"error: {text}")
            self._clients.tell_primary(protocol.frame(protocol.PMI_ABORT))
            self._terminate(self._spec.kill_wait_seconds)
