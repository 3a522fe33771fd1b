"""Images of containers as directories: found, or unpacked once into the user's cache.

A path is a directory, or an archive: .tar, .sqsh (enroot's), .sif (apptainer's). Anything else names an image of
podman's store, or of a registry: what the node has pulls it (podman, enroot or apptainer), and runs nothing. Every
program has a time limit, and incomplete results are removed.

Source: podman(1), enroot(1), apptainer(1), pyxis.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst")
SQUASHED = (".sqsh", ".squashfs", ".sqfs")
_APPTAINER = (".sif",)

#: suffix of an unpacked image's configuration, next to its directory
_CONFIGURATION = ".json"

#: Seconds for a pull or for unpacking, unless the user sets it; and for a query.
LIMIT_VARIABLE = "SPRITZ_CONTAINER_SECONDS"
_LIMIT_SECONDS = 1800.0
_QUESTION_SECONDS = 60.0


class Refused(Exception):
    """The image cannot be used; the text is for the job's standard error."""


def root_of(image: str, environment: dict[str, str]) -> str:
    """The image's directory, unpacked if necessary. Raises Refused."""
    if not image.startswith("/"):
        return _of_name(image, environment)
    if os.path.isdir(image):
        return image
    try:
        status = os.stat(image)
    except OSError as error:
        raise Refused(f"couldn't start container: {image}: {error.strerror}") from error
    state = f"{os.path.realpath(image)}\0{status.st_size}\0{status.st_mtime_ns}"
    seconds = limit(environment)
    if image.endswith(SQUASHED):
        return _kept(state, environment, image, lambda place: _unsquash(place, image, seconds))
    if image.endswith(_ARCHIVES):
        return _kept(state, environment, image, lambda place: _extract(place, image, seconds))
    if image.endswith(_APPTAINER):
        return _kept(state, environment, image, lambda place: _sandbox(place, image, image, seconds))
    accepted = ", ".join((*_ARCHIVES, *SQUASHED, *_APPTAINER))
    raise Refused(f"{image}: a directory, {accepted}, or the name of an image is accepted")


def limit(environment: dict[str, str]) -> float:
    """Seconds for a pull or for unpacking."""
    try:
        return float(environment.get(LIMIT_VARIABLE, "")) or _LIMIT_SECONDS
    except ValueError:
        return _LIMIT_SECONDS


def variables_of(root: str) -> dict[str, str]:
    """Variables that the image sets: `Env` of its configuration, else /etc/environment."""
    lines = _configuration_of(root).get("Env")
    if not isinstance(lines, list):
        try:
            with open(root + "/etc/environment", encoding="utf-8", errors="replace") as text:
                lines = text.read().splitlines()
        except OSError:
            return {}
    pairs = (str(line).partition("=") for line in lines if not str(line).startswith("#"))
    return {name: value.strip('"') for name, sign, value in pairs if sign and name.isidentifier()}


def entry_point_of(root: str) -> list[str]:
    """The image's entry point, from its configuration or enroot's /etc/rc."""
    words = _configuration_of(root).get("Entrypoint")
    if isinstance(words, list):
        return [str(word) for word in words]
    return ["/bin/sh", "/etc/rc"] if os.path.isfile(root + "/etc/rc") else []


def _configuration_of(root: str) -> dict[str, object]:
    try:
        with open(root + _CONFIGURATION, encoding="utf-8") as file:
            configuration = json.load(file)
    except (OSError, ValueError):
        return {}
    return configuration if isinstance(configuration, dict) else {}


def copy(root: str, place: str, seconds: float) -> None:
    """Copy the image's files, with its configuration in enroot's form. Raises Refused, OSError."""
    run(["cp", "--archive", "--no-preserve=ownership", "--reflink=auto", f"{root}/.", place], root, seconds)
    if not os.path.exists(root + _CONFIGURATION):
        return
    variables, entry_point = variables_of(root), entry_point_of(root)
    os.makedirs(f"{place}/etc", exist_ok=True)
    with replaced(f"{place}/etc/environment") as file:
        file.writelines(f"{name}={value}\n" for name, value in variables.items())
    if entry_point:
        import shlex

        with replaced(f"{place}/etc/rc") as file:
            file.write(f'exec {shlex.join(entry_point)} "$@"\n')


@contextmanager
def replaced(path: str) -> Iterator[IO[str]]:
    """A new file that replaces whatever has that name: an image may have a link to anywhere there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "w", encoding="utf-8") as file:
        yield file


def program(name: str) -> str:
    """Path of an installed program. Raises Refused, with the program's name and the node's."""
    path = shutil.which(name)
    if path is None:
        raise Refused(f"{name} is needed, and is not installed on {os.uname().nodename}")
    return path


def run(words: list[str], image: str, seconds: float, doing: str = "unpack") -> str:
    """Standard output of a successful program. Raises Refused, also if it has not ended after `seconds`."""
    status, output, errors = _finished(words, image, seconds)
    if status:
        error_lines = errors.strip().splitlines()
        raise Refused(
            f"couldn't {doing} {image}: {error_lines[-1][:300] if error_lines else os.path.basename(words[0])}"
        )
    return output


def _finished(words: list[str], image: str, seconds: float) -> tuple[int, str, str]:
    """(status, output, errors). Whatever it started is killed with it."""
    import subprocess  # a warm start does without

    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as ran:
        try:
            output, errors = ran.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            name = " ".join([os.path.basename(words[0]), *words[1:2]])
            raise Refused(f"{image}: `{name}` has not ended within {seconds:g} s") from error
        finally:
            if ran.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(ran.pid, signal.SIGKILL)
                ran.communicate()
    return ran.returncode, output.decode(errors="replace"), errors.decode(errors="replace")


# Archives


def _unsquash(place: str, image: str, seconds: float) -> None:
    run([program("unsquashfs"), "-no-progress", "-force", "-dest", place, image], image, seconds)


def _extract(place: str, archive: str, seconds: float) -> None:
    """Devices are the node's, and only root could make them. Raises Refused."""
    words = [program("tar"), "--extract", "--file", archive, "--directory", place, "--no-same-owner"]
    run([*words, "--anchored", "--exclude=./dev/*", "--exclude=dev/*"], archive, seconds)
    if os.path.exists(os.path.join(place, "manifest.json")) or os.path.exists(os.path.join(place, "oci-layout")):
        raise Refused(f"{archive} is an archive of podman or docker: `podman load` it, and give its name")


def _sandbox(place: str, source: str, image: str, seconds: float) -> None:
    apptainer = shutil.which("apptainer") or shutil.which("singularity") or program("apptainer")
    run([apptainer, "build", "--force", "--sandbox", place, source], image, seconds)


# Names


def _of_name(image: str, environment: dict[str, str]) -> str:
    """By the first of podman, enroot and apptainer that the node has."""
    if shutil.which("podman"):
        return _of_podman(image.replace("#", "/", 1), environment)
    seconds = limit(environment)
    if enroot := shutil.which("enroot"):

        def unpack(place: str) -> None:
            squashed = place + ".sqsh"
            try:
                run([enroot, "import", "--output", squashed, f"docker://{image}"], image, seconds, "import")
                _unsquash(place, squashed, seconds)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(squashed)

        return _kept(f"enroot\0{image}", environment, image, unpack)
    if shutil.which("apptainer") or shutil.which("singularity"):
        source = f"docker://{image.replace('#', '/', 1)}"
        return _kept(f"apptainer\0{source}", environment, image, lambda place: _sandbox(place, source, image, seconds))
    node = os.uname().nodename
    raise Refused(
        f"{image}: podman, enroot or apptainer is needed for names of images, and none is installed on {node}"
    )


def _of_podman(image: str, environment: dict[str, str]) -> str:
    """An image of podman's store, which pulls it if it is not there."""
    if os.getuid() and _users_mapped() == 1:
        # It would not find its own processes from here, and forget them.
        raise Refused(
            f"{image}: podman cannot run on an ordinary user's virtual nodes (SlurmdParameters=private_hosts)"
        )
    podman, seconds = program("podman"), limit(environment)
    inspect = [podman, "image", "inspect", "--format", "{{.Id}} {{json .Config}}", image]
    status, output, errors = _finished(inspect, image, _QUESTION_SECONDS)
    if status:
        tell(f"importing {image}")
        run([podman, "pull", "--quiet", image], image, seconds, "import")
        status, output, errors = _finished(inspect, image, _QUESTION_SECONDS)
    number, _, configuration = output.partition(" ")
    if status or not number:
        raise Refused(f"couldn't start container: {image}: {errors.strip()[:300]}")

    def unpack(place: str) -> None:
        name = run([podman, "create", image, "true"], image, _QUESTION_SECONDS).strip()
        archive = place + ".tar"
        try:
            run([podman, "export", "--output", archive, name], image, seconds)
            _extract(place, archive, seconds)
        finally:
            _finished([podman, "rm", name], image, _QUESTION_SECONDS)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(archive)

    return _kept(f"podman\0{number}", environment, image, unpack, configuration)


def _users_mapped() -> int:
    """How many user ids this process's user namespace has. podman needs more than the user's own."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return sum(int(line.split()[2]) for line in file)


def tell(text: str) -> None:
    """Write to the task's standard error, so that the user sees why the task does not start yet."""
    sys.stderr.write(f"slurmstepd: container: {text}\n")
    sys.stderr.flush()


# Cache


def cache_of(environment: dict[str, str], kind: str) -> str:
    """The user's directory of images, or of containers with names."""
    home = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "/tmp", ".cache")
    return os.path.join(home, "spritz", kind)


def _kept(
    state: str, environment: dict[str, str], image: str, unpack: Callable[[str], None], configuration: str = ""
) -> str:
    """The image as a directory of the user's cache, whole or not at all."""
    import hashlib  # an image that is a directory does without

    place = os.path.join(cache_of(environment, "images"), hashlib.sha256(state.encode()).hexdigest()[:32])

    def make(part: str) -> None:
        tell(f"unpacking {image}")
        unpack(part)
        if configuration:
            with open(place + _CONFIGURATION, "w", encoding="utf-8") as file:
                file.write(configuration)

    made_once(place, make, image)
    return place


def made_once(place: str, make: Callable[[str], None], image: str) -> None:
    """The directory `place`, filled by `make` under another name first. The first task creates it, the others wait;
    remains of a killed one are replaced. Raises Refused.
    """
    if os.path.isdir(place):
        return
    part = place + ".part"
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        with open(place + ".lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.isdir(place):
                return
            shutil.rmtree(part, ignore_errors=True)
            os.mkdir(part, 0o755)
            try:
                make(part)
                os.rename(part, place)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise Refused(f"couldn't unpack {image}: {error.filename or place}: {error.strerror}") from error
