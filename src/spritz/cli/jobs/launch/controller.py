"""srun's and salloc's connection to the controller: waits also end at signals, and a restart does not break it.

Source: docs/decisions/0002 (standard I/O does not depend on it); slurm.conf(5) MessageTimeout.
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING

from spritz.client.command.sync import Connection, connect_controller, decoder_of
from spritz.client.errors import CallTimeout, ClientError, RemoteError
from spritz.stepd.reactor import READABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from msgspec import Struct

    from spritz.model.job.step import Step
    from spritz.stepd.reactor import Reactor
    from spritz.wire.envelope import Response

    T = TypeVar("T")

#: Seconds to look for a controller that does not answer.
PATIENCE_SECONDS = 60.0
_RETRY_SECONDS = 1.0
#: Seconds for which a request that could not be sent is repeated.
_SEND_AGAIN_SECONDS = 10.0


class Interrupted(Exception):
    """A signal arrived during `Controller.wait`; `number` is the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def running_on(
    controller: Controller, parts: tuple[Step, ...], errors: dict[tuple[int, str], str]
) -> set[tuple[int, str]] | None:
    """(job id, node) wherever a step runs; None if the controller does not answer. `errors` gets why it could not be
    started elsewhere.
    """
    from spritz.model.job.job_filter import JobFilter, JobTarget
    from spritz.model.queries.steps import ListSteps, Steps

    targets = tuple(JobTarget(step.job_id, step_id=step.step_id) for step in parts)
    try:
        answer = controller.call(ListSteps(filter=JobFilter(targets=targets)), Steps)
    except RemoteError:
        return set()
    except ClientError:
        return None  # unknown: the step may still run
    errors.update({(error.job_id, error.node): error.error for error in answer.launch_errors})
    number = parts[0].step_id
    steps = [view.step for view in answer.steps if view.step.step_id == number]
    return {(step.job_id, node) for step in steps for node in step.running_nodes}


class Controller:
    """A connection that is made again when it breaks."""

    def __init__(self, reactor: Reactor, *, timeout_seconds: float | None = None) -> None:
        self._reactor = reactor
        self._timeout_seconds = timeout_seconds
        self._connection: Connection | None = connect_controller(timeout=timeout_seconds)
        self._interrupted = 0

    def look_again(self) -> None:
        """Locate the controller again: the cluster to use may have changed."""
        self.close()
        self._connection = connect_controller(timeout=self._timeout_seconds)

    def interrupt(self, number: int) -> None:
        """Make the present `wait` raise Interrupted. `number` is the signal's number."""
        self._interrupted = number
        self._reactor.stop()

    def call(self, request: Struct, reply_type: type[T], *, patience: float = 0.0) -> T:
        """The answer to `request`. For `patience` seconds, retries if the controller does not answer, also if it is
        reached each time: a machine that hangs accepts connections. Raises ClientError.
        """
        deadline = monotonic() + patience
        try:
            return _ask(self._connected(0.0), request, reply_type)
        except RemoteError:
            raise
        except ClientError as error:
            self.close()
            # The request could not be sent, so the controller did not receive it, and repeating it is safe.
            if not patience and error.code != "SLURMCTLD_COMMUNICATIONS_SEND_ERROR":
                raise
        while True:
            timeout = deadline - monotonic() if patience else _SEND_AGAIN_SECONDS
            try:
                return _ask(self._connected(timeout), request, reply_type)
            except RemoteError:
                raise
            except ClientError:
                self.close()
                if monotonic() + _RETRY_SECONDS > deadline:
                    raise
            sleep(_RETRY_SECONDS)

    def send(self, request: Struct) -> None:
        """Send a request, whose answer `wait` returns. Raises ClientError if it cannot be sent."""
        self._connected(0.0).send(request)

    def wait(self, reply_type: type[T], *, seconds: float | None = None) -> T | None:
        """The answer to the last request; None after `seconds` without one.

        Raises Interrupted, RemoteError, or ClientError if the connection breaks.
        """
        connection = self._connected(0.0)
        expired: list[bool] = []
        timer = self._reactor.after(seconds, lambda: self._expire(expired)) if seconds is not None else None
        self._reactor.watch(connection.fileno(), READABLE, lambda ready: self._reactor.stop())
        try:
            while not expired:
                self._reactor.run()
                if self._interrupted:
                    number, self._interrupted = self._interrupted, 0
                    raise Interrupted(number)
                try:
                    response = connection.receive(timeout=0.0)
                except CallTimeout:
                    continue
                if response.error is not None:
                    raise RemoteError(response.error)
                return decoder_of(reply_type).decode(response.body)
        finally:
            self._reactor.forget(connection.fileno())
            if timer is not None:
                timer.cancel()
        return None

    def listen(
        self,
        request: Struct,
        reply_type: type[T],
        on_reply: Callable[[T | None], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Send a request; call back from the reactor with the answer (None for a refusal). Raises ClientError."""
        request_id = self._connected(0.0).send(request)

        def on_response(response: Response) -> None:
            if response.id == request_id:
                on_reply(None if response.error is not None else decoder_of(reply_type).decode(response.body))

        self._watch(on_response, on_lost)

    def watch_loss(self, on_lost: Callable[[], None]) -> None:
        """Call back once when the connection breaks. Drops answers that arrive before."""
        self._watch(lambda response: None, on_lost)

    def _watch(self, on_response: Callable[[Response], None], on_lost: Callable[[], None]) -> None:
        connection = self._connection
        if connection is None:
            return

        def ready(events: int) -> None:
            try:
                response = connection.receive(timeout=0.0)
            except CallTimeout:
                return
            except ClientError:
                self.close()
                on_lost()
                return
            on_response(response)

        self._reactor.watch(connection.fileno(), READABLE, ready)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._reactor.forget(self._connection.fileno())
            self._connection.close()
            self._connection = None

    def _expire(self, expired: list[bool]) -> None:
        expired.append(True)
        self._reactor.stop()

    def _connected(self, patience: float) -> Connection:
        if self._connection is None:
            deadline = monotonic() + patience
            while True:
                try:
                    # Do not sleep here: the same loop serves other waits.
                    self._connection = connect_controller(timeout=self._timeout_seconds, wait_seconds=0.0)
                    break
                except ClientError:
                    if monotonic() + _RETRY_SECONDS > deadline:
                        raise
                sleep(_RETRY_SECONDS)
        return self._connection

    def connect_patiently(self, seconds: float) -> None:
        """Connect, with retries for `seconds`. Raises ClientError after that."""
        self._connected(seconds)


def _ask(connection: Connection, request: Struct, reply_type: type[T]) -> T:
    """The answer to this request; answers to others are dropped."""
    request_id = connection.send(request)
    while True:
        response = connection.receive()
        if response.id == request_id:
            break
    if response.error is not None:
        raise RemoteError(response.error)
    return decoder_of(reply_type).decode(response.body)
