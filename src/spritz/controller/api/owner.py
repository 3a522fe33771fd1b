"""The owner of a submitted job: the caller by the kernel's credentials; administrators may name another user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from spritz.controller.needs import Identifying

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call
    from spritz.model.cluster.settings import Caller
    from spritz.model.job.record import JobSpec


def owned(context: Identifying, spec: JobSpec, caller: Caller) -> JobSpec:
    """The spec with user and groups looked up."""
    uid = spec.uid if spec.uid >= 0 else caller.uid
    # A user without an entry keeps the group of its credentials.
    person = context.identity.person(uid, caller.gid if uid == caller.uid else -1)
    gid, group = person.gid, person.group
    if spec.gid >= 0 and spec.gid != gid and (caller.admin or spec.gid in person.groups):
        gid, group = spec.gid, context.identity.group_name(spec.gid)
    return structs.replace(spec, uid=uid, gid=gid, user=person.user, group=group, groups=person.groups)


def granted_to(call: Call, spec: JobSpec) -> tuple[str, ...]:
    """Fields that the call may set beyond the rights of its user.

    AdminComment of an external job that SlurmUser or root queues for a user: it is how the system outside finds its
    jobs again, and no user can set it.
    """
    by_master = call.caller is not None and call.caller.by_master
    return ("admin_comment",) if by_master and spec.external else ()
