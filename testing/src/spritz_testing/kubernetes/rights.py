"""Who a pod's containers are, and whose the files of its volumes are, by the rules of the kubelet.

- A container runs as its own `runAsUser`, else the pod's, else the image's user.
- Files of ConfigMaps, Secrets and projected volumes are root's, with the mode that the volume gives (0644 by default).
  With `fsGroup` their group is that, and it may read them (0440 is added).
- An emptyDir is root's with mode 0777, a claim's volume root's with 0755. With `fsGroup` the group may read and write
  (0660, directories 0770 and setgid); with `OnRootMismatch` only if the volume's own directory does not say so yet.

Source: Kubernetes, "Configure a Security Context for a Pod or Container"; pkg/volume/volume_linux.go.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from spritz_testing.kubernetes.errors import Object

_SETGID = 0o2000


def identity(pod: Object, container: Object, image: int) -> tuple[int, int, list[int]]:
    """uid, gid and further groups of a container of a pod with this spec. `image`: the user of the image, and its group
    without `runAsGroup`.
    """
    of_pod = pod.get("securityContext") or {}
    own = {**of_pod, **(container.get("securityContext") or {})}
    uid = own.get("runAsUser", image)
    gid = own.get("runAsGroup", image if uid == image else 0)
    return uid, gid, [of_pod["fsGroup"]] if "fsGroup" in of_pod else []


def capabilities(container: Object) -> list[str]:
    """What a container has of the capabilities that container runtimes give by default, and what it adds."""
    wanted = (container.get("securityContext") or {}).get("capabilities") or {}
    kept = set() if "ALL" in (wanted.get("drop") or ()) else {*_DEFAULT} - set(wanted.get("drop") or ())
    return sorted({*kept, *(wanted.get("add") or ())})


_DEFAULT = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "AUDIT_WRITE"),
)


def own_files(pod: Object, volume: Object, directory: Path, modes: Mapping[str, int] | None = None) -> None:
    """Give the files of a Secret, ConfigMap or projected volume to whom the kubelet gives them. Only as root.

    `modes`: of files, by their paths below `directory`, that do not have the volume's.
    """
    source = next(volume[kind] for kind in ("projected", "secret", "configMap", "downwardAPI") if kind in volume)
    mode = source.get("defaultMode", 0o644)
    group = (pod.get("securityContext") or {}).get("fsGroup")
    for path in directory.rglob("*"):
        os.chown(path, 0, 0 if group is None else group)
        if path.is_dir():
            path.chmod(0o755 if group is None else _SETGID | 0o755)
        else:
            own = (modes or {}).get(str(path.relative_to(directory)), mode)
            path.chmod(own if group is None else own | 0o440)
    os.chown(directory, 0, 0 if group is None else group)
    directory.chmod(0o755 if group is None else _SETGID | 0o755)


def own_directory(pod: Object, volume: Object, directory: Path) -> None:
    """Give an emptyDir or a claim's volume to whom the kubelet gives it at each start of a pod. Only as root."""
    context = pod.get("securityContext") or {}
    group = context.get("fsGroup")
    status = directory.stat()
    if group is None:
        if "emptyDir" in volume:
            directory.chmod(0o777)
        return
    if "emptyDir" in volume:
        directory.chmod(0o777 | (status.st_mode & _SETGID))
    ready = status.st_gid == group and status.st_mode & (_SETGID | 0o660) == _SETGID | 0o660
    if context.get("fsGroupChangePolicy", "Always") == "OnRootMismatch" and ready:
        return
    for path in (directory, *directory.rglob("*")):
        os.chown(path, -1, group, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (_SETGID | 0o770 if path.is_dir() else 0o660))
