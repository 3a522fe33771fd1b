"""Who the containers of a cluster's pods run as, and what they may do. See docs/decisions/0237.

The control plane is SlurmUser, an ordinary user: its pods fit the Pod Security level *restricted*. slurmd, sshd and a
dashboard that asks PAM are root, with few capabilities: *baseline*.

The kubelet gives the files of Secrets and ConfigMaps to root and to the pod's group (`fsGroup`), readable by both;
daemons take a key of root's that only their group can read (`spritz.runtime.privilege.is_private`).
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

#: SlurmUser, and the user of the image (packaging/kubernetes/Containerfile). Images of nodes need no entry for it.
SLURM_USER: Final = 65532

#: What slurmd as root needs to start tasks as their users. Not SYS_NICE, which *baseline* refuses: without it no task
#: has a nice value below 0.
SLURMD_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")

#: What sshd as root needs to listen on its port, and to begin sessions of users.
SSHD_CAPABILITIES: Final = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "KILL",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
)

_SECCOMP: Final = {"type": "RuntimeDefault"}


def slurm_user() -> Json:
    """The security context of a pod that runs as SlurmUser."""
    return {
        "runAsNonRoot": True,
        "runAsUser": SLURM_USER,
        "runAsGroup": SLURM_USER,
        "fsGroup": SLURM_USER,
        # The kubelet would let the group write what daemons keep to themselves, at each start: they refuse that.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": _SECCOMP,
    }


def root() -> Json:
    """The security context of a pod that runs as root, whatever its image says."""
    return {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": _SECCOMP}


def container(*capabilities: str) -> Json:
    """The security context of a container with these capabilities alone."""
    allowed: Json = {"drop": ["ALL"]}
    if capabilities:
        allowed["add"] = list(capabilities)
    return {"allowPrivilegeEscalation": False, "capabilities": allowed}
