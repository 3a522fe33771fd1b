"""Options for the container of a script or of a step's tasks: --container, and the options of pyxis.

Source: srun(1), pyxis's README.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.errors import SpritzError
from spritz.model.job.record import ContainerOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.cli.jobs.submit.refusals import Source

Fields = dict[str, object]

_FLAGS = {
    "container-writable": {"writable": True, "readonly": False},
    "container-readonly": {"writable": False, "readonly": True},
    "container-mount-home": {"mount_home": True},
    "no-container-mount-home": {"mount_home": False},
    "container-remap-root": {"remap_root": True},
    "no-container-remap-root": {"remap_root": False},
    "container-entrypoint": {"entrypoint": True},
    "no-container-entrypoint": {"entrypoint": False},
    "container-entrypoint-log": {},
}
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
#: The words of PYXIS_CONTAINER_NAME and others. Each flag has two options, for 1 and for 0.
_VARIABLES = ("image", "mounts", "workdir", "name", "save", "env")
_SWITCHES = {
    "MOUNT_HOME": ("container-mount-home", "no-container-mount-home"),
    "REMAP_ROOT": ("container-remap-root", "no-container-remap-root"),
    "ENTRYPOINT": ("container-entrypoint", "no-container-entrypoint"),
    "ENTRYPOINT_LOG": ("container-entrypoint-log", ""),
    "WRITABLE": ("container-writable", "container-readonly"),
    "READONLY": ("container-readonly", "container-writable"),
}
_YES, _NO = frozenset(("1", "true", "yes", "y", "on")), frozenset(("0", "false", "no", "n", "off"))


def read_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Options from the PYXIS_CONTAINER_ variables, by option name."""
    by_option: dict[str, str] = {}
    for word in _VARIABLES:
        value = environ.get(f"PYXIS_CONTAINER_{word.upper()}")
        if value is not None:
            by_option[f"container-{word}"] = value
    for word, options in _SWITCHES.items():
        value = environ.get(f"PYXIS_CONTAINER_{word}", "").lower()
        option = options[0] if value in _YES else options[1] if value in _NO else ""
        if option:
            by_option[option] = ""
    return by_option


def set_option(fields: Fields, option: str, value: str, source: Source) -> None:
    """Parse a container option into `fields`. Raises SpritzError."""
    earlier = fields.get("container")
    container = earlier if isinstance(earlier, ContainerOptions) else ContainerOptions()
    if option == "container":
        # Unchanged: without an oci.conf, other software may read it.
        container = replace(container, bundle=value)
        if not value and container == ContainerOptions():
            return
    elif option in _FLAGS:
        container = replace(container, **_FLAGS[option])
    elif option == "container-image":
        container = replace(container, image=_image(value, source.cwd))
    elif option == "container-mounts":
        container = replace(container, mounts=tuple(_mount(word, source.cwd) for word in value.split(",") if word))
    elif option == "container-name":
        container = replace(container, **_name(value))
    elif option == "container-save":
        container = replace(container, save=_save(value, source.cwd))
    elif option == "container-env":
        if not all(value.split(",")):
            raise SpritzError(f"--container-env: invalid format: {value[:80]}")
        container = replace(container, environment=tuple(value.split(",")))
    elif value.startswith("/"):
        container = replace(container, work_dir=value)
    else:
        raise SpritzError(f"--{option}: {value[:80]!r}: the path must be absolute")
    if container.bundle and container != ContainerOptions(bundle=container.bundle):
        raise SpritzError(f"--{option}: an OCI bundle (--container) is its own image, and has mounts of its own")
    fields["container"] = container


def _image(value: str, cwd: str) -> str:
    """The image's name, a path as an absolute path: the node has another working directory."""
    if not value:
        raise SpritzError("--container-image: an image is needed")
    return os.path.normpath(os.path.join(cwd, value)) if value.startswith(("/", "./", "../", ".")) else value


def _name(value: str) -> dict[str, object]:
    name, _, flag = value.partition(":")
    if flag == "exec":
        raise SpritzError("--container-name: the flag exec is not supported by Spritz: tasks share files, not mounts")
    if flag not in ("", "auto", "create", "no_exec"):
        raise SpritzError('--container-name: flag must be "auto", "create", "exec" or "no_exec"')
    if not name or name.startswith(".") or not _NAME.issuperset(name):
        raise SpritzError(f"--container-name: {name[:80]!r}: letters, digits and _ . - are accepted")
    return {"name": name, "create": flag == "create"}


def _save(value: str, cwd: str) -> str:
    if not value:
        raise SpritzError("--container-save: argument required")
    if value.endswith("/"):
        raise SpritzError("--container-save: target is a directory")
    return os.path.normpath(os.path.join(cwd, value))


def _mount(word: str, cwd: str) -> str:
    source, _, destination = word.partition(":")
    target, _, flags = destination.partition(":")
    if not source or not (target or not destination):
        raise SpritzError(f"--container-mounts: {word[:80]!r}: SRC:DST[:FLAGS] is accepted")
    if source == "umount":
        raise SpritzError("--container-mounts: umount is not supported by Spritz")
    source = source if source == "tmpfs" else os.path.normpath(os.path.join(cwd, source))
    target = target or source
    if not target.startswith("/"):
        raise SpritzError(f"--container-mounts: {word[:80]!r}: the path inside must be absolute")
    unknown = [flag for flag in flags.split("+") if flag not in ("", "ro", "rw", "rbind", "bind", "x-create=dir")]
    if unknown:
        raise SpritzError(f"--container-mounts: {word[:80]!r}: the flag {unknown[0][:20]} is not supported by Spritz")
    return f"{source}:{target}:ro" if "ro" in flags.split("+") else f"{source}:{target}"
