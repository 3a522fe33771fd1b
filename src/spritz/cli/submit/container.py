"""What a script or the tasks of a step run in: --container, and pyxis's options. Source: srun(1), pyxis's README."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.errors import SpritzError
from spritz.model.job import ContainerOptions

if TYPE_CHECKING:
    from spritz.cli.submit.refusals import Source

Fields = dict[str, object]

_FLAGS = {
    "container-writable": {"writable": True},
    "container-readonly": {"writable": False},
    "container-mount-home": {"mount_home": True},
    "no-container-mount-home": {"mount_home": False},
    "container-remap-root": {"remap_root": True},
    "no-container-remap-root": {"remap_root": False},
    "no-container-entrypoint": {},
}


def set_option(fields: Fields, option: str, value: str, source: Source) -> None:
    """One of them. Raises SpritzError."""
    found = fields.get("container")
    container = found if isinstance(found, ContainerOptions) else ContainerOptions()
    if option == "container":
        # As it is: without an oci.conf it is for whatever else looks at it.
        container = replace(container, bundle=value)
        if not value and container == ContainerOptions():
            return
    elif option in _FLAGS:
        container = replace(container, **_FLAGS[option])
    elif option == "container-image":
        container = replace(container, image=_image(value, source.cwd))
    elif option == "container-mounts":
        container = replace(container, mounts=tuple(_mount(word, source.cwd) for word in value.split(",") if word))
    elif value.startswith("/"):
        container = replace(container, work_dir=value)
    else:
        raise SpritzError(f"--{option}: {value[:80]!r}: the path must be absolute")
    if container.bundle and container != ContainerOptions(bundle=container.bundle):
        raise SpritzError(f"--{option}: an OCI bundle (--container) is its own image, and has mounts of its own")
    fields["container"] = container


def _image(value: str, cwd: str) -> str:
    """A path is made absolute: the node looks for it from elsewhere."""
    if not value:
        raise SpritzError("--container-image: an image is needed")
    return os.path.normpath(os.path.join(cwd, value)) if value.startswith(("/", "./", "../", ".")) else value


def _mount(word: str, cwd: str) -> str:
    source, _, rest = word.partition(":")
    target, _, flags = rest.partition(":")
    if not source or not (target or not rest):
        raise SpritzError(f"--container-mounts: {word[:80]!r}: SRC:DST[:FLAGS] is accepted")
    source = os.path.normpath(os.path.join(cwd, source))
    target = target or source
    if not target.startswith("/"):
        raise SpritzError(f"--container-mounts: {word[:80]!r}: the path inside must be absolute")
    unknown = [flag for flag in flags.split("+") if flag not in ("", "ro", "rw", "rbind", "bind", "x-create=dir")]
    if unknown:
        raise SpritzError(f"--container-mounts: {word[:80]!r}: the flag {unknown[0][:20]} is not supported by Spritz")
    return f"{source}:{target}:ro" if "ro" in flags.split("+") else f"{source}:{target}"
