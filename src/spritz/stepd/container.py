"""A task in a container: this program becomes bwrap, with the task's command in it.

    python -m spritz.stepd.container OPTIONS COMMAND…        OPTIONS: JSON, as `model.job.ContainerOptions` has them

It runs as the user, as any task does, with the task's variables, CPUs, devices and files. A container is a root file
system and nothing else: processes stay in the job's cgroups and see the node's network, processes and devices, so
signals, limits, GPUs and MPI are what they are without. An image is a directory; or an archive (.tar, .sqsh), or the
name of an image that podman has or can pull, each unpacked once into the user's cache.

Variables that the image sets (its configuration, or /etc/environment) come before the job's, as with pyxis.

Source: bwrap(1); pyxis's README.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NoReturn

#: What is mounted over an image in any case, where the node has it.
_HOST_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf")

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst")
_SQUASHED = (".sqsh", ".squashfs", ".sqfs")

#: Where the configuration of an unpacked image is, beside its directory.
_CONFIGURATION = ".json"

Mount = tuple[str, str, bool]


class Refused(Exception):
    """It cannot be; the words are for the job's standard error."""


def main(words: list[str]) -> int:
    """Returns only where there is no such container."""
    try:
        start(json.loads(words[0]), words[1:], dict(os.environ))
    except Refused as error:
        sys.stderr.write(f"slurmstepd: error: container: {error}\n")
    except OSError as error:
        sys.stderr.write(f"slurmstepd: error: container: {error.filename}: {error.strerror}\n")
    return 1


def start(options: dict[str, Any], command: list[str], environment: dict[str, str]) -> NoReturn:
    """Become the command in its container. Raises Refused, OSError."""
    image = options.get("image", "")
    if not image:
        raise Refused("--container-image is needed")
    mounts = [_mount(text) for text in options.get("mounts", ())]
    for source, _, _ in mounts:
        if not os.path.exists(source):
            raise Refused(f"couldn't mount {source}: No such file or directory")
    if options.get("mount_home") and (home := environment.get("HOME")):
        mounts.insert(0, (home, home, False))
    engine = _program("bwrap")
    root = root_of(image, environment)
    words = arguments(root, mounts, options, command, environment)
    # The image's variables are for the command: its LD_LIBRARY_PATH must not choose bwrap's own libraries.
    given = [word for name, value in variables_of(root).items() for word in ("--setenv", name, value)]
    os.execve(engine, [engine, *given, *words], environment)


def root_of(image: str, environment: dict[str, str]) -> str:
    """The directory that the image is, or is unpacked to. Raises Refused."""
    if not image.startswith("/"):
        return _of_podman(image, environment)
    if os.path.isdir(image):
        return image
    try:
        status = os.stat(image)
    except OSError as error:
        raise Refused(f"couldn't start container: {image}: {error.strerror}") from error
    state = f"{os.path.realpath(image)}\0{status.st_size}\0{status.st_mtime_ns}"
    if image.endswith(_SQUASHED):
        words = [_program("unsquashfs"), "-no-progress", "-force", "-dest"]
        return _kept(state, environment, image, lambda place: _run([*words, place, image], image))
    if image.endswith(_ARCHIVES):
        return _kept(state, environment, image, lambda place: _extract(place, image))
    raise Refused(f"{image}: a directory, {', '.join((*_ARCHIVES, *_SQUASHED))}, or the name of an image is accepted")


def variables_of(root: str) -> dict[str, str]:
    """What the image sets."""
    try:
        with open(root + _CONFIGURATION, encoding="utf-8") as file:
            lines = json.load(file).get("Env") or []
    except (OSError, ValueError):
        try:
            with open(root + "/etc/environment", encoding="utf-8", errors="replace") as text:
                lines = text.read().splitlines()
        except OSError:
            return {}
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {name: value.strip('"') for name, sign, value in pairs if sign and name.isidentifier()}


def _mount(text: str) -> tuple[str, str, bool]:
    source, target, *flags = text.split(":")
    return source, target, "ro" in flags


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Refused(f"{name} is needed, and is not installed on {os.uname().nodename}")
    return found


def arguments(
    root: str, mounts: list[Mount], options: dict[str, Any], command: list[str], environment: dict[str, str]
) -> list[str]:
    """bwrap's. Devices are the node's, as far as the job's cgroup lets them be opened; /tmp is the container's own."""
    made = bool(options.get("writable"))
    all_mounts = [*_of_mpi(environment), *mounts]
    opened = set() if made else _without_place(root, [target for _, target, _ in all_mounts])
    found = ["--bind" if made else "--ro-bind", root, "/"] if not opened else _in_parts(root, opened)
    if options.get("remap_root"):
        found += ["--unshare-user", "--uid", "0", "--gid", "0"]
    found += ["--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    # What the image has no place for is left out: a root that may not be written to gets no new directories.
    if made or os.path.isdir(f"{root}/sys"):
        found += ["--ro-bind", "/sys", "/sys"]
    for directory in ("/tmp", "/run"):
        if made or os.path.isdir(root + directory):
            found += ["--tmpfs", directory]
    for path in _HOST_FILES:
        if os.path.exists(path) and (made or os.path.exists(root + path)):
            found += ["--ro-bind", os.path.realpath(path), path]
    for source, target, read_only in all_mounts:
        found += ["--ro-bind" if read_only else "--bind", source, target]
    found += ["--remount-ro", "/"] if opened else []
    return [*found, "--chdir", _directory(options, root, mounts), "--", *command]


def _of_mpi(environment: dict[str, str]) -> list[Mount]:
    """Where a server of PMIx has its socket. (PMI-2 comes as a descriptor, which is kept.)"""
    place = environment.get("PMIX_SERVER_TMPDIR", "")
    return [(place, place, False)] if place and os.path.isdir(place) else []


def _without_place(root: str, targets: list[str]) -> set[str]:
    """Directories of the image in which targets that it does not have are made. Below the container's own /tmp and
    /run, and the node's /dev, anything can be mounted.
    """
    found: set[str] = set()
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
            found.add(above)
            above = os.path.dirname(above)
        found.add("/")
    return found


def _in_parts(root: str, opened: set[str]) -> list[str]:
    """The image with its `opened` directories made anew, so that they can have more than the image has in them."""
    found: list[str] = []
    for directory in sorted(opened):
        if directory != "/":
            found += ["--dir", directory]
        for name in sorted(os.listdir(root + directory)):
            path = os.path.join(directory, name)
            if path in opened:
                continue
            if os.path.islink(root + path):
                found += ["--symlink", os.readlink(root + path), path]
            else:
                found += ["--ro-bind", root + path, path]
    return found


def _directory(options: dict[str, Any], root: str, mounts: list[Mount]) -> str:
    """--container-workdir, else where the command was started if that is seen inside, else /."""
    if options.get("work_dir"):
        return str(options["work_dir"])
    here = os.getcwd()
    if any(here == target or here.startswith(target.rstrip("/") + "/") for _, target, _ in mounts):
        return here
    return here if os.path.isdir(root + here) else "/"


def _of_podman(image: str, environment: dict[str, str]) -> str:
    """An image of podman's store, which pulls it if it is not there. podman runs nothing."""
    podman = _program("podman")
    image = image.replace("#", "/", 1)  # as enroot writes a registry
    inspect = [podman, "image", "inspect", "--format", "{{.Id}} {{json .Config}}", image]
    done = subprocess.run(inspect, capture_output=True, text=True)
    if done.returncode:
        _run([podman, "pull", "--quiet", image], image)
        done = subprocess.run(inspect, capture_output=True, text=True)
    number, _, configuration = done.stdout.partition(" ")
    if done.returncode or not number:
        raise Refused(f"couldn't start container: {image}: {done.stderr.strip()[:300]}")

    def unpack(place: str) -> None:
        made = subprocess.run([podman, "create", image, "true"], capture_output=True, text=True)
        if made.returncode:
            raise Refused(f"couldn't unpack {image}: {made.stderr.strip()[:300]}")
        name = made.stdout.strip()
        archive = place + ".tar"
        try:
            _run([podman, "export", "--output", archive, name], image)
            _extract(place, archive)
        finally:
            subprocess.run([podman, "rm", name], capture_output=True)
            if os.path.exists(archive):
                os.unlink(archive)

    return _kept(f"podman\0{number}", environment, image, unpack, configuration)


def _extract(place: str, archive: str) -> None:
    """Devices are the node's, and only root could make them. Raises Refused."""
    words = [_program("tar"), "--extract", "--file", archive, "--directory", place, "--no-same-owner"]
    _run([*words, "--anchored", "--exclude=./dev/*", "--exclude=dev/*"], archive)
    if os.path.exists(os.path.join(place, "manifest.json")) or os.path.exists(os.path.join(place, "oci-layout")):
        raise Refused(f"{archive} is an archive of podman or docker: `podman load` it, and give its name")


def _run(words: list[str], image: str) -> None:
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise Refused(f"couldn't unpack {image}: {said[-1][:300] if said else words[0]}")


def _kept(
    state: str, environment: dict[str, str], image: str, unpack: Callable[[str], None], configuration: str = ""
) -> str:
    """The image as a directory of the user's cache, whole or not at all. The first task that wants it makes it, and the
    others wait; what a killed one has left is made anew.
    """
    home = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "/tmp", ".cache")
    cache = os.path.join(home, "spritz", "images")
    place = os.path.join(cache, hashlib.sha256(state.encode()).hexdigest()[:32])
    if os.path.isdir(place):
        return place
    part = place + ".part"
    try:
        os.makedirs(cache, mode=0o700, exist_ok=True)
        with open(place + ".lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.isdir(place):
                return place
            shutil.rmtree(part, ignore_errors=True)
            os.mkdir(part, 0o755)
            try:
                unpack(part)
                if configuration:
                    with open(place + _CONFIGURATION, "w", encoding="utf-8") as file:
                        file.write(configuration)
                os.rename(part, place)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise Refused(f"couldn't unpack {image}: {error.filename or cache}: {error.strerror}") from error
    return place


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
