"""Check this machine's container programs by running them: bwrap for --container-image, a program that pulls images by
name, and the runtime of oci.conf for --container.

Source: bwrap(1); oci.conf(5); docs/how-to/containers.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

from spritz.cli.local.doctor.finding import NOTE, OK, WRONG, Finding
from spritz.config import alone
from spritz.config.diagnostics import Diagnostics
from spritz.config.files import Files
from spritz.config.relatives.oci import read

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 10.0
_PULLERS = ("podman", "enroot", "apptainer", "singularity")
#: Directories searched in addition to the user's PATH.
_ADMINISTRATORS = "/usr/local/sbin:/usr/sbin:/sbin"


def findings(oci_conf: str) -> Iterator[Finding]:
    """Findings of `spritz doctor` about containers. `oci_conf`: path of oci.conf, which need not exist."""
    yield from _bwrap()
    if os.path.exists(oci_conf):
        yield from _runtime(oci_conf)


def _bwrap() -> Iterator[Finding]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        yield Finding(NOTE, "no --container-image here: bwrap is not installed", "install it (Debian: bubblewrap)")
        return
    problem = _tried([bwrap, "--ro-bind", "/", "/", "true"])
    if problem:
        advice = "allow user namespaces (user_namespaces(7)), or make bwrap setuid"
        yield Finding(NOTE, f"no --container-image here: bwrap does not work: {problem}", advice)
        return
    pullers, broken = [], []
    for name in _PULLERS:
        path = shutil.which(name)
        problem = _tried([path, "--version"]) if path else ""
        if problem:
            broken.append(f"{name}: {problem}")
        elif path:
            pullers.append(name)
    by = f"by name ({pullers[0]})" if pullers else "no names (podman, enroot and apptainer are missing)"
    squashed = ".sqsh" if shutil.which("unsquashfs") else "no .sqsh (unsquashfs is missing)"
    yield Finding(OK, f"containers: bwrap runs images from directories, .tar, {squashed}, {by}")
    for problem in broken:
        yield Finding(NOTE, f"images cannot be pulled by {problem}", "repair or remove it: then the next is used")


def _runtime(oci_conf: str) -> Iterator[Finding]:
    """Findings about the program of RunTimeRun, or of RunTimeCreate without it."""
    words, wrong = alone.examine(oci_conf, "oci.conf")
    if not words:
        yield Finding(WRONG, f"{oci_conf}: {wrong[0].text if wrong else 'cannot be read'}", "oci.conf(5)")
        return
    oci = read(Files(os.path.dirname(oci_conf), Diagnostics()).lines(oci_conf), oci_conf, Diagnostics())
    name = ((oci.run or oci.create).split() or [""])[0]
    runtime = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_ADMINISTRATORS}")
    if runtime is None:
        yield Finding(WRONG, f"no --container here: {name or 'the command'} of oci.conf is not installed", "install it")
        return
    problem = _tried_runtime(runtime) if os.path.basename(runtime) in ("runc", "crun") else ""
    if problem:
        advice = "run it by hand: docs/how-to/containers.md; another runtime may work"
        yield Finding(WRONG, f"no --container here: {name} runs no container: {problem}", advice)
    else:
        yield Finding(OK, f"--container: {runtime} as oci.conf says")


def _tried_runtime(runtime: str) -> str:
    """Run a container without any file in it: the runtime works if the missing program is its only complaint."""
    with tempfile.TemporaryDirectory(prefix="spritz-") as directory:
        os.mkdir(f"{directory}/rootfs")
        rootless = [] if os.geteuid() == 0 else ["--rootless"]
        if problem := _tried([runtime, "spec", *rootless], directory):
            return problem
        path = f"{directory}/config.json"
        with open(path, encoding="utf-8") as file:
            configuration = json.load(file)
        configuration["process"] |= {"terminal": False, "args": ["spritz-no-such-program"]}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(configuration, file)
        problem = _tried([runtime, f"--root={directory}/state", "run", os.path.basename(directory)], directory)
    return "" if "spritz-no-such-program" in problem else problem or "it prints nothing"


def _tried(words: list[str], directory: str = "/") -> str:
    """Run a command; return the last line of its errors, "" if it succeeded."""
    try:
        done = subprocess.run(
            words, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"it has not ended within {_SECONDS:g} s"
    except OSError as error:
        return str(error.strerror)
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return lines[-1][:300] if done.returncode else ""
