"""Which files with secrets a process takes."""

from __future__ import annotations

import os

import pytest

from spritz.runtime.privilege import UnknownUser, is_private, uid_of_setting


def status(mode: int, uid: int, gid: int) -> os.stat_result:
    return os.stat_result((0o100000 | mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "euid", "expected"),
    [
        (0o600, 1000, 1000, 1000, True),
        (0o400, 0, 0, 0, True),
        (0o440, 0, 65532, 65532, True),  # a pod's Secret, of its fsGroup
        (0o640, 0, 65532, 65532, True),
        (0o440, 0, 65532, 0, False),  # root needs no group: it may be people
        (0o440, 0, 100, 65532, False),  # of others
        (0o440, 65532, 65532, 65532, False),  # of its own: nobody needs the group
        (0o460, 0, 65532, 65532, False),
        (0o444, 0, 65532, 65532, False),
        (0o604, 1000, 1000, 1000, False),
    ],
)
def test_files_of_root_may_be_for_our_group(
    mode: int, uid: int, gid: int, euid: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    monkeypatch.setattr(os, "getegid", lambda: 500)
    monkeypatch.setattr(os, "getgroups", lambda: [65532])
    assert is_private(status(mode, uid, gid)) is expected


def test_a_number_needs_no_entry() -> None:
    assert uid_of_setting("64321") == 64321
    assert uid_of_setting("root") == 0
    with pytest.raises(UnknownUser):
        uid_of_setting("no-such-user")
