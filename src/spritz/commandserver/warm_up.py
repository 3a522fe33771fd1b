"""A dry run of calls in a spare child.

A forked process shares its parent's memory, and each first write to a page costs several microseconds; a call writes to
hundreds of pages. The dry run takes that cost before a caller waits. It has no visible effect: output is dropped, and
answers are made up, with one job, instead of asking a daemon.
"""

from __future__ import annotations

import _socket
import io
import os
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from msgspec.msgpack import Encoder

from spritz.cli.call.context import Context
from spritz.cli.call.entry import call
from spritz.client.command import sync
from spritz.client.errors import ClientError
from spritz.model.commands.job import JobSubmitted
from spritz.model.job.record import Job, JobSpec
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import JobRows, ListJobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.cli.call.entry import Main

#: none that waits for an answer in a loop of its own: there is none
_CALLS = (
    ("squeue", "-j", "1"),
    ("scontrol", "show", "job", "1"),
    ("sbatch", "--wrap", "true"),
)
_JOB = Job(id=1, spec=JobSpec(name="warm-up", uid=0, gid=0, user="root", group="root", work_dir="/"), partition="none")


def warm_up(commands: dict[str, Main]) -> None:
    """Run some commands and drop their output."""
    os.environ["SLURM_CONF"] = os.devnull
    kept = sync._try_controller, sync.Connection.stream, sync.Connection.call
    ends: list[_socket.socket] = []

    def connect(config: object, deadline: float, problems: list[str]) -> _socket.socket:
        """A connection without a peer."""
        ends.extend(_socket.socketpair())
        return ends[-2]

    sync._try_controller = connect
    sync.Connection.stream = _stream  # type: ignore[assignment, method-assign]  # only for the answers made up here
    sync.Connection.call = _call  # type: ignore[assignment, method-assign]
    try:
        for name, *words in _CALLS:
            _perform(name, words, commands)
    finally:
        sync._try_controller = kept[0]
        sync.Connection.stream = kept[1]  # type: ignore[method-assign]
        sync.Connection.call = kept[2]  # type: ignore[method-assign]
        for end in ends:
            end.close()


def _perform(name: str, words: list[str], commands: dict[str, Main]) -> None:
    nowhere = io.StringIO()
    context = Context(name, os.environ, "/", io.StringIO(), nowhere, nowhere)
    try:
        call(commands[name], words, context)
    except Exception:
        pass  # it went as far as it could


def _stream(
    connection: sync.Connection, request: Struct, item_type: type[Struct], *, timeout: float | None = None
) -> Iterator[Struct]:
    """A piece of a stream with one job, decoded from bytes as in a real answer."""
    connection.send(request)
    answer: Struct
    if item_type is JobRows and isinstance(request, ListJobs):
        answer = JobRows(now=0.0, version=1, rows=[tuple(_value(path) for path in request.fields)])
    elif item_type is Jobs:
        answer = Jobs(now=0.0, version=1, jobs=[_JOB])
    else:
        raise ClientError("nothing is known of that")
    yield sync.decoder_of(item_type).decode(Encoder().encode(answer))


def _call(
    connection: sync.Connection, request: Struct, reply_type: type[Struct], *, timeout: float | None = None
) -> Struct:
    connection.send(request)
    if reply_type is not JobSubmitted:
        raise ClientError("nothing is known of that")
    return sync.decoder_of(reply_type).decode(Encoder().encode(JobSubmitted(job_id=1)))


def _value(path: str) -> object:
    """The job's value at a path such as `spec.name`."""
    value: object = _JOB
    for name in path.split("."):
        value = getattr(value, name)
    return to_builtins(value)
