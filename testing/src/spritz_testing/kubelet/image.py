"""What stands in for the image: this machine's files, with users, programs and an empty /home of their own.

Like the packaged image (packaging/kubernetes/Containerfile) it has the programs in /usr/local/bin, the user 65532, and
/run/sshd; besides, users who submit jobs.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: The image's user, as the Containerfile has it.
USER: Final = 65532

PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"

#: System users that programs of the image look for.
_SYSTEM: Final = {"root": 0, "sshd": 105, "nobody": 65534, "spritz": USER}


def lay_out(directory: Path, users: Mapping[str, int]) -> None:
    """Write the image's own files, which hide this machine's, below `directory`. `users`: names and uids."""
    etc, programs = directory / "etc", directory / "usr/local/bin"
    for place in (etc, programs, directory / "run/sshd", directory / "root"):
        place.mkdir(parents=True, exist_ok=True)
    everyone = {**_SYSTEM, **users}
    homes = {name: "/root" if name == "root" else f"/home/{name}" if name in users else "/" for name in everyone}
    shells = {name: "/bin/bash" if name in users or name == "root" else "/usr/sbin/nologin" for name in everyone}
    lines = {
        "passwd": [f"{name}:x:{uid}:{uid}::{homes[name]}:{shells[name]}" for name, uid in everyone.items()],
        "group": [f"{name}:x:{uid}:" for name, uid in everyone.items()],
        "shadow": [f"{name}:*:19000:0:99999:7:::" for name in everyone],
    }
    for name, text in lines.items():
        (etc / name).write_text("\n".join([*text, ""]))
    (etc / "shadow").chmod(0o640)
    (etc / "resolv.conf").write_text("")
    for name, uid in users.items():
        home = directory / "home" / name
        home.mkdir(parents=True, exist_ok=True)
        os.chown(home, uid, uid)
    for program in Path(sys.executable).parent.iterdir():
        target = programs / program.name
        if os.access(program, os.X_OK) and not target.is_symlink():
            target.symlink_to(program)


def parts() -> list[Path]:
    """Directories of the interpreter, of what is installed for it, and of the checkout. None is within another."""
    import spritz
    import spritz_testing

    wanted = {Path(sys.prefix), Path(sys.base_prefix), *map(Path, sys.path)}
    wanted |= {Path(module.__file__ or "").parents[1] for module in (spritz, spritz_testing)}
    real = sorted({Path(os.path.realpath(path)) for path in wanted if path.is_dir()})
    kept: list[Path] = []
    for path in real:
        if path in (Path("/"), Path("/usr")) or any(path.is_relative_to(outer) for outer in (*kept, Path("/usr"))):
            continue
        kept.append(path)
    return kept


def environment() -> dict[str, str]:
    """The image's own variables."""
    own = {"PATH": PATH, "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}
    # Where a checkout is tried that is not the installed one.
    return own | {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}


def missing() -> str:
    """Why no container can run here; "" if one can."""
    if os.geteuid() != 0:
        return "needs root: containers are namespaces"
    for program in ("unshare", "nsenter", "setpriv", "pivot_root", "mount", "ip"):
        if shutil.which(program) is None:
            return f"needs {program}"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "needs overlayfs"
    return ""
