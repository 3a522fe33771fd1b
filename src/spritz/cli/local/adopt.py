"""Admit only ssh sessions of users with a job on this node, and put the sessions into the job. For pam_exec.

In /etc/pam.d/sshd, as the last line of `account` (leave out pam_systemd, which would move sessions out of the job):

    account required pam_exec.so stdout /usr/bin/spritz adopt

Where jobs have private directories (JobContainerType=job_container/tmpfs), and the line `/tmp tmpfs tmpfs root` in
/etc/security/namespace.conf gives sessions a mount namespace, these lines show the job's directories to the session:

    session required pam_namespace.so mount_private
    session required pam_exec.so stdout /usr/bin/spritz adopt --directories

The session's processes belong to step `extern` of the user's newest job that is not suspended (slurm.conf:
PrologFlags=Contain): the limits of that job on memory, cores and devices apply to them, and they end with the job.
root is always admitted.
"""

from __future__ import annotations

import os
import socket
from pwd import getpwnam
from typing import TYPE_CHECKING

from spritz.client.locate import read_keys
from spritz.config.settings import substitute
from spritz.model.errors import SpritzError
from spritz.stepd.adopt import NotHeld, adopt, cover, held_by, is_suspended, steps_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.cli.call.context import Context


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--conf", metavar="FILE", help="slurm.conf (default: as other commands find it)")
    parser.add_argument(
        "--directories", action="store_true", help="give an adopted session its job's private /tmp and /dev/shm"
    )
    parser.add_argument(
        "--allow-unheld",
        action="store_true",
        help="admit a user with a job even if the session cannot be put into the job",
    )


def run(arguments: Namespace, context: Context) -> int:
    """0: admitted; 1: refused, with the reason on standard output, which pam_exec shows to the user."""
    user = context.environ.get("PAM_USER", "")
    if not user:
        raise SpritzError("PAM_USER is not set", hint="pam_exec sets it: see `spritz adopt --help`")
    try:
        uid = getpwnam(user).pw_uid
    except KeyError:
        context.out(f"Access denied: no such user: {user}\n")
        return 1
    if uid == 0 or context.environ.get("PAM_TYPE") == "close_session":
        return 0
    pattern = read_keys(frozenset({"slurmdspooldir", "clustername"}), arguments.conf)
    spool = substitute(
        pattern.get("slurmdspooldir", "/var/spool/slurmd"),
        nodename="*",
        hostname=socket.gethostname().partition(".")[0],
        clustername=pattern.get("clustername", "").lower(),
    )
    steps = steps_of(uid, spool)
    session = os.getppid()
    if arguments.directories:
        step = held_by(session, steps)
        if step is None:
            context.out("Access denied: this session is not in a job: run `spritz adopt` first, under account\n")
            return 1
        try:
            cover(session, *step)
        except NotHeld as error:
            context.out(f"Access denied: the directories of job {step[0].job_id} cannot be shown: {error}\n")
            return 1
        return 0
    if not steps:
        context.out(f"Access denied: user {user} (uid={uid}) has no active jobs on this node.\n")
        return 1
    # A session in a frozen group would hang before it is authenticated, and fill sshd's MaxStartups.
    awake = [step for step in steps if not is_suspended(*step)]
    if not awake:
        context.out(f"Access denied: job {steps[0][0].job_id} of user {user} (uid={uid}) is suspended on this node.\n")
        return 1
    try:
        adopt(session, *awake[0])
    except NotHeld as error:
        if arguments.allow_unheld:
            return 0
        context.out(f"Access denied: job {awake[0][0].job_id} cannot hold this session: {error}\n")
        return 1
    return 0
