"""A task in a container: this program becomes bwrap, with the task's command in it.

    python -m spritz.stepd.container OPTIONS COMMAND…        OPTIONS: JSON, `model.job.record.ContainerOptions` with
                                                             devices_denied, devices_given of gres.conf
    python -m spritz.stepd.container --save OPTIONS PID      after the step's end: --container-save

It runs as the user, as any task does, with the task's variables, CPUs, devices and files. A container is a root file
system and nothing else: processes stay in the job's cgroups and see the node's network, processes and devices, so
signals, limits, GPUs and MPI work as without it. `images` provides the root.

A container with a name (--container-name), or to be saved, is a writable copy of the image in the user's cache.
Variables that the image sets (its configuration, or /etc/environment) come before the job's, as with pyxis.

Source: bwrap(1); pyxis's README.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

from spritz.stepd import images
from spritz.stepd.images import Refused

#: files always mounted over an image, if the node has them
_HOST_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf")

#: in place of a source: an empty file system
_TMPFS = "tmpfs"

Mount = tuple[str, str, bool]


def main(words: list[str]) -> int:
    """Returns only if there is no such container, or after saving it."""
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        if words[0] == "--save":
            return save(json.loads(words[1]), dict(os.environ))
        start(json.loads(words[0]), words[1:], dict(os.environ))
    except Refused as error:
        sys.stderr.write(f"slurmstepd: error: container: {error}\n")
    except OSError as error:
        sys.stderr.write(f"slurmstepd: error: container: {error.filename}: {error.strerror}\n")
    return 1


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """Removes incomplete images, and ends their programs, before exiting."""
    raise SystemExit(128 + number)


def start(options: dict[str, Any], command: list[str], environment: dict[str, str]) -> NoReturn:
    """Become the command in its container. Raises Refused, OSError."""
    image, name = options.get("image", ""), options.get("name", "")
    if not image and not name:
        raise Refused("--container-image is needed")
    mounts = [_mount(text) for text in options.get("mounts", ())]
    for source, _, _ in mounts:
        if source != _TMPFS and not os.path.exists(source):
            raise Refused(f"couldn't mount {source}: No such file or directory")
    if options.get("mount_home") and (home := environment.get("HOME")):
        mounts.insert(0, (home, home, False))
    engine = images.program("bwrap")
    if options.get("save"):
        _saver(options["save"])  # checked before hours of work, not after them
    if name or options.get("save"):
        root = _container(options, environment)
        options = {**options, "writable": not options.get("readonly")}
    else:
        root = images.root_of(image, environment)
    if options.get("entrypoint"):
        command = [*images.entry_point_of(root), *command]
    words = arguments(root, mounts, options, command, environment)
    # The image's variables are for the command only: its LD_LIBRARY_PATH must not affect bwrap.
    ours = options.get("environment", ())
    variables = {name: value for name, value in images.variables_of(root).items() if name not in ours}
    given = [word for name, value in variables.items() for word in ("--setenv", name, value)]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.execve(engine, [engine, *given, *words], environment)


# Named and saved containers


def _container(options: dict[str, Any], environment: dict[str, str]) -> str:
    """The directory of the named container, or of the step's own that will be saved."""
    image, name = options.get("image", ""), options.get("name", "")
    place, marker = _place(options, environment), f"{_place(options, environment)}.step"
    step = _step(environment)

    def make(part: str) -> None:
        if not image:
            raise Refused(f"couldn't start container: there is none with the name {name}, and no --container-image")
        images.tell(f"creating container filesystem {name}".rstrip())
        images.copy(images.root_of(image, environment), part, images.limit(environment))
        with images.replaced(marker) as file:
            file.write(step)

    there = os.path.isdir(place)
    images.made_once(place, make, image or name)
    if there and options.get("create"):
        made_by = ""
        with contextlib.suppress(OSError), open(marker, encoding="utf-8") as file:
            made_by = file.read()
        if made_by != step:
            raise Refused(f'"create" was given with --container-name={name}, and the container exists already')
    return place


def _place(options: dict[str, Any], environment: dict[str, str]) -> str:
    # Nodes share homes, but a step's own container belongs to one node.
    name = options.get("name") or f".{_step(environment)}.{_node(environment)}"
    return os.path.join(images.cache_of(environment, "containers"), name)


def _step(environment: dict[str, str]) -> str:
    return f"{environment.get('SLURM_JOB_ID', '0')}.{environment.get('SLURM_STEP_ID', 'batch')}"


def _node(environment: dict[str, str]) -> str:
    return environment.get("SLURMD_NODENAME") or os.uname().nodename


def save(options: dict[str, Any], environment: dict[str, str]) -> int:
    """Write the container's files to the file of --container-save, whole or not at all. Raises Refused, OSError."""
    place, target = _place(options, environment), options["save"]
    if not os.path.isdir(place):
        return 0  # it was never created, and the task reported that
    part = f"{target}.{_step(environment)}.{_node(environment)}.part"
    try:
        images.run(_saver(target, place, part), target, images.limit(environment), "save")
        os.rename(part, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        if not options.get("name"):
            shutil.rmtree(place, ignore_errors=True)
            for ending in (".lock", ".step"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(place + ending)
    return 0


def _saver(target: str, place: str = "", part: str = "") -> list[str]:
    """The command that makes the file; a squashed file system unless its name says otherwise. Raises Refused."""
    kinds = {".tar": "", ".tar.gz": "--gzip", ".tgz": "--gzip", ".tar.xz": "--xz", ".tar.bz2": "--bzip2"}
    for ending, option in (*kinds.items(), (".tar.zst", "--zstd")):
        if target.endswith(ending):
            words = [images.program("tar"), "--create", "--file", part, "--directory", place]
            return [*words, *([option] if option else []), "."]
    return [images.program("mksquashfs"), place, part, "-noappend", "-no-progress", "-all-root"]


# -- bwrap


def _mount(text: str) -> tuple[str, str, bool]:
    source, target, *flags = text.split(":")
    return source, target, "ro" in flags


def arguments(
    root: str, mounts: list[Mount], options: dict[str, Any], command: list[str], environment: dict[str, str]
) -> list[str]:
    """Arguments of bwrap. Devices are the node's, but only the step's of those in gres.conf; /tmp is the container's
    own.
    """
    writable = bool(options.get("writable"))
    all_mounts = [*_of_mpi(environment), *mounts]
    given = options.get("devices_given", ())
    devices = [path for path in given if not path.startswith("/dev/") and os.path.exists(path)]
    opened = set() if writable else _without_place(root, [*devices, *(target for _, target, _ in all_mounts)])
    words = ["--bind" if writable else "--ro-bind", root, "/"] if not opened else _in_parts(root, opened)
    if options.get("remap_root"):
        words += ["--unshare-user", "--uid", "0", "--gid", "0"]
    words += ["--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    for path in options.get("devices_denied", ()):
        if path.startswith("/dev/") and os.path.exists(path):
            words += ["--bind", path, path]  # which no device can be opened through (nodev)
    # Targets missing in the image are skipped: a read-only root gets no new directories.
    if writable or os.path.isdir(f"{root}/sys"):
        words += ["--ro-bind", "/sys", "/sys"]
    for directory in ("/tmp", "/run"):
        if writable or os.path.isdir(root + directory):
            words += ["--tmpfs", directory]
    for path in _HOST_FILES:
        if os.path.exists(path) and (writable or os.path.exists(root + path)):
            words += ["--ro-bind", os.path.realpath(path), path]
    for path in devices:
        words += ["--dev-bind", path, path]
    for source, target, read_only in all_mounts:
        if source == _TMPFS:
            words += ["--tmpfs", target]
        else:
            words += ["--ro-bind" if read_only else "--bind", source, target]
    words += ["--remount-ro", "/"] if opened else []
    return [*words, "--chdir", _directory(options, root, mounts), "--", *command]


def _of_mpi(environment: dict[str, str]) -> list[Mount]:
    """Where a server of PMIx has its socket. (PMI-2 comes as a descriptor, which is kept.)"""
    place = environment.get("PMIX_SERVER_TMPDIR", "")
    return [(place, place, False)] if place and os.path.isdir(place) else []


def _without_place(root: str, targets: list[str]) -> set[str]:
    """Directories of the image in which missing targets must be created. Below the container's own /tmp and /run, and
    the node's /dev, anything can be mounted.
    """
    missing: set[str] = set()
    for target in targets:
        target = os.path.normpath(target)
        if os.path.lexists(root + target) or target.startswith(("/tmp/", "/run/", "/dev/")):
            continue
        above = os.path.dirname(target)
        while not os.path.lexists(root + above):
            above = os.path.dirname(above)
        while above != "/":
            if os.path.islink(root + above) or not os.path.isdir(root + above):
                raise Refused(f"couldn't mount {target}: the image's {above} is no directory")
            missing.add(above)
            above = os.path.dirname(above)
        missing.add("/")
    return missing


def _in_parts(root: str, opened: set[str]) -> list[str]:
    """The image with its `opened` directories rebuilt, so that they can contain more than in the image."""
    words: list[str] = []
    for directory in sorted(opened):
        if directory != "/":
            words += ["--dir", directory]
        for name in sorted(os.listdir(root + directory)):
            path = os.path.join(directory, name)
            if path in opened:
                continue
            if os.path.islink(root + path):
                words += ["--symlink", os.readlink(root + path), path]
            else:
                words += ["--ro-bind", root + path, path]
    return words


def _directory(options: dict[str, Any], root: str, mounts: list[Mount]) -> str:
    """--container-workdir, else where the command was started if that is seen inside, else /."""
    if options.get("work_dir"):
        return str(options["work_dir"])
    here = os.getcwd()
    if any(here == target or here.startswith(target.rstrip("/") + "/") for _, target, _ in mounts):
        return here
    if here.startswith(("/tmp/", "/run/")):
        return "/"  # the container's own directories are empty
    return here if os.path.isdir(root + here) else "/"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
