"""Launches by a controller on another machine: accepted only with its credential.

Source: docs/decisions/0176; slurm.conf(5) CredType.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct, ValidationError
from msgspec.msgpack import Decoder

from spritz.model.node_daemon.launch import (
    ForwardOrder,
    LaunchBatch,
    LaunchProlog,
    LaunchStep,
    Order,
    SignedLaunch,
    subject_of,
)
from spritz.notation import hostlist
from spritz.runtime.authority import is_signed
from spritz.wire.credential import BadCredential, Taken, digest_of, launch_of, order_of

if TYPE_CHECKING:
    from spritz.client.trust.membership import Membership
    from spritz.runtime.clock import Clock

#: messages that need a credential from another machine
LAUNCHES: tuple[type[Struct], ...] = (LaunchBatch, LaunchStep, LaunchProlog)

_decoders = {kind.__name__: Decoder(kind) for kind in LAUNCHES}


class Launches:
    """Verifies launches that came from another machine: signature, content, receiver, and that each is used once."""

    def __init__(self, membership: Membership, cluster: str, clock: Clock) -> None:
        self._membership = membership
        self._cluster = cluster
        self._clock = clock
        self._taken = Taken()

    def open(self, signed: SignedLaunch) -> LaunchBatch | LaunchStep | LaunchProlog:
        """The launch that the message carries. Raises BadCredential, which says what is wrong with it."""
        if not signed.credential or not signed.signature:
            raise BadCredential("missing", "a launch from another machine needs one")
        if not is_signed(signed.credential, signed.signature, self._membership.launch_keys):
            raise BadCredential("forged", "no controller of this cluster has signed it")
        credential = launch_of(signed.credential)
        if digest_of(signed.message) != credential.digest:
            raise BadCredential("altered", "the launch is not the one that was signed")
        decoder = _decoders.get(signed.kind)
        if decoder is None:
            raise BadCredential("malformed", f"{signed.kind[:60]!r} is no launch")
        try:
            launch = decoder.decode(signed.message)
        except (ValidationError, DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadCredential("malformed", str(error)) from error
        assert isinstance(launch, LaunchBatch | LaunchStep | LaunchProlog), "by the table of decoders"
        job = launch.job
        step_id = launch.step.step_id if isinstance(launch, LaunchStep) else -1
        meant = (launch.term, launch.node, job.id, job.restart_count, step_id, job.spec.uid, job.spec.gid)
        signed_values = (
            credential.term,
            credential.node,
            credential.job_id,
            credential.restart_count,
            credential.step_id,
            credential.uid,
            credential.gid,
        )
        if meant != signed_values or launch.node not in hostlist.expand(credential.nodes):
            raise BadCredential("altered", "job, step, node, user or term are not those that were signed")
        self._taken.check(credential, cluster=self._cluster, now=self._clock.now())
        return launch

    def check_order(self, request: ForwardOrder, order: Order) -> None:
        """Check that the controller has given this order for these nodes. Raises BadCredential."""
        if not request.credential or not request.signature:
            raise BadCredential("missing", "an order from another machine needs one")
        if not is_signed(request.credential, request.signature, self._membership.launch_keys):
            raise BadCredential("forged", "no controller of this cluster has signed it")
        credential = order_of(request.credential)
        if digest_of(request.message) != credential.digest:
            raise BadCredential("altered", "the order is not the one that was signed")
        subject = (credential.job_id, credential.restart_count, credential.step_id, credential.uid, credential.gid)
        if (credential.kind, credential.term, subject) != (request.kind, order.term, subject_of(order)):
            raise BadCredential("altered", "order, job, step, user or term are not those that were signed")
        if not set(request.nodes) <= set(hostlist.expand(credential.nodes)):
            raise BadCredential("altered", "the order is for other nodes")
        self._taken.check(credential, cluster=self._cluster, now=self._clock.now())
