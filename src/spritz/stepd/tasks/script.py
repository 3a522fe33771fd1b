"""The batch script of a step, as a file in its spool directory that its user can read and run, and not change.

Slurm gives the file to the user (mode 0700). So a user can fill SlurmdSpoolDir by appending to a script. Here the file
stays the daemon's, and an access control list lets the user in, and no group.

Source: acl(5); linux/posix_acl_xattr.h.
"""

from __future__ import annotations

import errno
import os
from struct import pack

from spritz.stepd.spec import SCRIPT, SupervisorSpec

_ACL = "system.posix_acl_access"
#: e_tag of an entry
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_NO_ID = 0xFFFFFFFF
_VERSION = 2
#: the file system has no such lists
_WITHOUT_LISTS = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def write_script(spec: SupervisorSpec) -> None:
    """Write it into the working directory. Raises OSError."""
    descriptor = os.open(SCRIPT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
    try:
        view = memoryview(spec.script)
        while view:
            view = view[os.write(descriptor, view) :]
        if os.geteuid() == 0 and spec.identity.uid != 0:
            _let_in(descriptor, spec.identity.uid, spec.identity.gid)
    finally:
        # Closed before the task is forked: a program that is open for writing cannot be executed.
        os.close(descriptor)


def _let_in(descriptor: int, uid: int, gid: int) -> None:
    """Let this user read and execute the file."""
    try:
        os.setxattr(descriptor, _ACL, access_list(uid))
    except OSError as error:
        if error.errno not in _WITHOUT_LISTS:
            raise
        os.fchown(descriptor, uid, gid)  # as in Slurm


def access_list(uid: int) -> bytes:
    """Owner: all; this user: read and execute; others: nothing. In the order that the kernel wants."""
    entries = ((_OWNER, 7, _NO_ID), (_USER, 5, uid), (_GROUP, 0, _NO_ID), (_MASK, 5, _NO_ID), (_OTHER, 0, _NO_ID))
    return pack("<I", _VERSION) + b"".join([pack("<HHI", *entry) for entry in entries])
