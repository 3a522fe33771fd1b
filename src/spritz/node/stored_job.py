"""The job in a step's record: what a restarted daemon needs for the Epilog.

It is the whole job, with each of its nodes, and every node of a wide step has a record: so a large one is compressed,
once for all nodes of this daemon. 1,000 nodes are 41 kB, and 2 kB compressed.
"""

from __future__ import annotations

import zlib

import msgspec

from spritz.model import stored
from spritz.model.job.record import Job
from spritz.stepd.spec import SupervisorSpec

#: A job of fewer bytes is stored as it is: the record takes a page of the disk in any case.
_LARGE_BYTES = 4096

_decoder = msgspec.msgpack.Decoder(Job)


def pack(job: Job) -> tuple[bytes, bool]:
    """`SupervisorSpec.job` and `job_compressed`."""
    plain = stored.encode(job)
    if len(plain) < _LARGE_BYTES:
        return plain, False
    return zlib.compress(plain, 1), True


def unpack(spec: SupervisorSpec) -> Job:
    """The job in a record. Raises UnsupportedFormat, or DecodeError for damaged data."""
    try:
        plain = zlib.decompress(spec.job) if spec.job_compressed else spec.job
    except zlib.error as error:
        raise msgspec.DecodeError(str(error)) from error
    return stored.decode(plain, _decoder)
