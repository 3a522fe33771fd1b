"""Runs in a container: `srun --container-image=…` starts the run's command, with the necessary directories mounted.

Only the command runs in the container. The job's script, which checks out the code and records the run's end, runs on
the node as usual. So an image needs nothing of Spritz: the run's directory (with code, metrics and checkpoints) is
mounted under its own path.

The options are those of pyxis, which sites with a real Slurm have.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job.settings import RunOptions

#: Offsets in a SIF file: of its magic word, and of the id that it gets when it is built.
_SIF_MAGIC, _SIF_ID = slice(32, 41), slice(48, 64)
#: Files up to this size in bytes are hashed at their first use, which takes seconds; larger ones are known by time.
_HASHED_BYTES_MAX = 16 << 30


def checked(options: RunOptions, directory: Path, environment: Mapping[str, str]) -> RunOptions:
    """The options with an absolute path of the image. Raises ExperimentError if the run cannot use a container."""
    image = options.container_image
    if not image:
        if options.container_mounts:
            raise ExperimentError("--container-mounts: --container-image is needed", exit_code=2)
        return options
    if options.template == "ray":
        raise ExperimentError(
            "--container-image: the template ray starts its cluster outside containers",
            hint="start `ray` in the command itself, or run without a container",
        )
    for text in options.container_mounts.split(",") if options.container_mounts else ():
        source, colon, target = text.partition(":")
        if not (colon and source.startswith("/") and target.startswith("/")):
            raise ExperimentError(f"--container-mounts={text}: /SRC:/DST[:ro] is expected", exit_code=2)
    path = Path(image).expanduser()
    if image.startswith(("/", "./", "../", "~")):
        path = directory / path
        if not path.exists():
            raise ExperimentError(f"--container-image={image}: no such file or directory")
        image = os.path.realpath(path)
    _need_srun(environment)
    return replace(options, container_image=image)


def need_none(options: RunOptions, what: str) -> None:
    """Raises ExperimentError if the run has a container image. `what`: the kind of run, for the message."""
    if options.container_image:
        raise ExperimentError(
            f"container_image: {what} run outside containers",
            hint="`spritz run -- COMMAND` and sweeps run in them; `srun --container-image` works inside any job",
        )


def _need_srun(environment: Mapping[str, str]) -> None:
    if "--container-image" not in slurm.call(["srun", "--help"], environment=environment).stdout:
        raise ExperimentError(
            "--container-image: this cluster's srun does not have this option",
            hint="on a real Slurm it comes with the plugin pyxis",
        )


def words(options: RunOptions, mounted: Sequence[str], read_only: Sequence[str] = ()) -> str:
    """Options of srun, for the script; `mounted`, `read_only`: paths as the shell reads them, of what must be there."""
    if not options.container_image:
        return ""
    mounts = [f"{path}:{path}" for path in dict.fromkeys(mounted)]
    mounts += [f"{path}:{path}:ro" for path in dict.fromkeys(read_only) if path not in mounted]
    mounts += [shlex.quote(options.container_mounts)] if options.container_mounts else []
    return (
        f" --container-image={shlex.quote(options.container_image)} --container-mounts={','.join(mounts)}"
        ' --container-workdir="$PWD"'
    )


def identity(image: str, home: Path, environment: Mapping[str, str]) -> str:
    """The image's name, and an identity of its content if it can be determined: the name may later mean another image.

    For a SIF file, the id from its build; for an archive, its SHA-256 (cached until the file changes); for a name, the
    digest of podman's image. Source: the header of SIF files (sylabs/sif, `pkg/sif`).
    """
    if not image.startswith("/"):
        digest = _of_podman(image, environment)
        return f"{image} {digest}" if digest else image
    with suppress(OSError), open(image, "rb") as file:
        header = file.read(_SIF_ID.stop)
        if header[_SIF_MAGIC] == b"SIF_MAGIC" and len(header) == _SIF_ID.stop:
            return f"{image} sif:{header[_SIF_ID].hex()}"
        return f"{image} {_of_file(image, home)}"
    return image


def _of_podman(image: str, environment: Mapping[str, str]) -> str:
    podman = shutil.which("podman", path=environment.get("PATH"))
    if podman is None:
        return ""
    inspect = [podman, "image", "inspect", "--format", "{{.Digest}}", image.replace("#", "/", 1)]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(inspect, capture_output=True, text=True, env=dict(environment), timeout=10)
        return done.stdout.strip() if not done.returncode else ""
    return ""


def _of_file(path: str, home: Path) -> str:
    status = os.stat(path)
    state = f"{path}\0{status.st_ino}\0{status.st_size}\0{status.st_mtime_ns}"
    kept = home / "environments" / f"image-{hashlib.sha256(state.encode()).hexdigest()[:20]}.json"
    with suppress(OSError, ValueError):
        return str(json.loads(kept.read_text(encoding="utf-8")))
    if status.st_size > _HASHED_BYTES_MAX:
        return f"modified:{status.st_mtime_ns / 1e9:.3f}"
    with open(path, "rb") as file:
        identity = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(identity), encoding="utf-8")
    return identity
