"""Root file systems for containers, made of this machine's own files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

_PROGRAMS = ("sh", "cat", "ls", "id", "sleep", "touch", "env")


def make_root(root: Path, *programs: str) -> Path:
    """A shell, a few programs, what they load, and /etc/where, which says `inside`."""
    for name in ("bin", "tmp", "run", "proc", "dev", "sys", "etc", "data"):
        (root / name).mkdir(parents=True)
    for name in (*_PROGRAMS, *programs):
        program = os.path.realpath(shutil.which(name) or name)
        shutil.copy(program, root / "bin" / os.path.basename(name))
        add_libraries(root, program)
    (root / "etc" / "where").write_text("inside\n")
    return root


def add_libraries(root: Path, program: str) -> None:
    """What the program loads."""
    found = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+)", found):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(library, target)
