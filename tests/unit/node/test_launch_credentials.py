"""A node takes a launch from another machine only with its controller's credential, for these very bytes, once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from spritz.client.trust.membership import Membership
from spritz.model.job.record import Job
from spritz.model.node_daemon.launch import LaunchProlog, SignedLaunch
from spritz.node.credentials import Launches
from spritz.runtime.authority import Signer
from spritz.wire.credential import BadCredential, LaunchCredential, derive, digest_of, launch_content
from spritz_testing.builders import job_spec

KEY = b"k" * 64
NOW = 1_800_000_000.0


class FixedClock:
    def now(self) -> float:
        return NOW


def launches() -> Launches:
    clock: Any = FixedClock()
    return Launches(Membership("/x/slurm.key", cluster_keys=(KEY,)), "spritz", clock)


def launch() -> LaunchProlog:
    return LaunchProlog(term=3, node="n1", job=Job(id=7, spec=job_spec(), submitted_at=NOW))


def signed(key: bytes = KEY, body: bytes | None = None, **changes: Any) -> SignedLaunch:
    message = launch()
    sent = msgspec.msgpack.encode(message)
    credential = LaunchCredential(
        cluster="spritz",
        term=3,
        node="n1",
        nodes="n[1-2]",
        job_id=7,
        restart_count=message.job.restart_count,
        step_id=-1,
        uid=message.job.spec.uid,
        gid=message.job.spec.gid,
        digest=digest_of(sent),
        issued_at=NOW,
        expires_at=NOW + 60,
        nonce=b"n" * 16,
    )
    content = launch_content(structs.replace(credential, **changes))
    return SignedLaunch(
        kind="LaunchProlog",
        message=sent if body is None else body,
        credential=content,
        signature=Signer(derive(key, "launch")).sign(content),
    )


def test_the_controllers_launch_is_taken_once() -> None:
    ours = launches()
    assert ours.open(signed()) == launch()
    with pytest.raises(BadCredential, match="replayed"):
        ours.open(signed())


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (signed(key=b"x" * 64), "forged"),
        (structs.replace(signed(), signature=b"\0" * 64), "forged"),
        (structs.replace(signed(), signature=b""), "missing"),
        (structs.replace(signed(), credential=b""), "missing"),
        (signed(body=msgspec.msgpack.encode(structs.replace(launch(), term=4))), "altered"),
        (signed(node="n2"), "altered"),
        (signed(nodes="n2"), "altered"),
        (signed(job_id=8), "altered"),
        (signed(step_id=0), "altered"),
        (signed(uid=0), "altered"),
        (signed(term=2), "altered"),
        (signed(cluster="other"), "foreign"),
        (signed(issued_at=NOW - 1000, expires_at=NOW - 940), "expired"),
        (structs.replace(signed(), kind="StopDaemon"), "malformed"),
    ],
)
def test_any_other_is_refused(sent: SignedLaunch, kind: str) -> None:
    with pytest.raises(BadCredential) as caught:
        launches().open(sent)
    assert caught.value.kind == kind


def test_a_downgraded_credential_is_refused() -> None:
    content = b"\x00" + signed().credential[1:]
    sent = structs.replace(signed(), credential=content, signature=Signer(derive(KEY, "launch")).sign(content))
    with pytest.raises(BadCredential, match="downgraded"):
        launches().open(sent)
