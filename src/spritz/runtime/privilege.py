"""Users, and giving up root: a daemon that is started as root runs as SlurmUser if it need not be root.

Source: slurm.conf(5) SlurmUser, SlurmdUser; credentials(7).
"""

from __future__ import annotations

import os
import pwd
import stat

from msgspec import Struct


class UnknownUser(LookupError):
    """No user of that name or number on this machine."""


class User(Struct, frozen=True, kw_only=True, gc=False):
    """One entry of the passwd database."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


def is_root() -> bool:
    """Whether this process may act for any user."""
    return os.geteuid() == 0


def lookup_user(name: str | int) -> User:
    """A user by name, or by number if it is one. Raises UnknownUser. May ask the network: not on a loop.

    The number of this process's user is always accepted: containers run as users without an entry.
    """
    text = str(name)
    try:
        entry = pwd.getpwuid(int(text)) if text.isdecimal() else pwd.getpwnam(text)
    except (KeyError, OverflowError, ValueError) as error:  # the last for a NUL byte, or digits that int() refuses
        if text == str(os.geteuid()):
            return User(name=text, uid=os.geteuid(), gid=os.getegid(), home="/", shell="/bin/sh")
        raise UnknownUser(f"no user {text!r} on this machine") from error
    return User(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, home=entry.pw_dir, shell=entry.pw_shell)


def uid_of_setting(name: str) -> int:
    """The uid of a user that a configuration names; a number needs no entry. Raises UnknownUser."""
    return int(name) if name.isascii() and name.isdecimal() and len(name) < 11 else lookup_user(name).uid


def is_private(status: os.stat_result) -> bool:
    """Whether no other user can use a file that holds a secret.

    Besides the owner, the group may read a file of root's if this process is in that group and not root: thus a pod's
    user gets Secrets (fsGroup), and a service certificates. As PostgreSQL has it for its keys.
    """
    others = status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if others == stat.S_IRGRP and status.st_uid == 0 and not is_root():
        return status.st_gid in (os.getegid(), *os.getgroups())
    return not others


def current_user() -> User:
    """The user that this process runs as, with a made-up entry if the passwd database has none."""
    return lookup_user(os.geteuid())


def become(user: User) -> None:
    """Run as `user`, with all its groups, and never as root again. Does nothing if that is the current user.

    Raises PermissionError if this process is neither root nor that user.
    """
    if os.geteuid() == user.uid:
        return
    if not is_root():
        raise PermissionError(1, f"only root can become {user.name}; this process runs as uid {os.geteuid()}")
    os.initgroups(user.name, user.gid)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
