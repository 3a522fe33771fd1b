"""Disk space and files that runs take, as quotas count them: allocated blocks, and inodes of files and directories."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

#: st_blocks counts these, whatever the file system's blocks are. Source: stat(2).
_BLOCK_BYTES = 512


@dataclass
class Space:
    """`files` counts directories and links too."""

    bytes: int = 0
    files: int = 0

    def add(self, other: Space) -> None:
        self.bytes += other.bytes
        self.files += other.files


def below(path: Path | str) -> Space:
    """What the file, or the directory with all below it, takes. Follows no links; leaves out what is unreadable."""
    try:
        status = os.lstat(path)
    except OSError:
        return Space()
    space = Space(status.st_blocks * _BLOCK_BYTES, 1)
    folders = [os.fspath(path)] if os.path.isdir(path) and not os.path.islink(path) else []
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    try:
                        space.bytes += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                    except OSError:
                        continue  # removed meanwhile
                    space.files += 1
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except OSError:
            continue
    return space


def parts(directory: Path) -> dict[str, Space]:
    """Name -> space of what is in the directory; "" is the directory itself, with the files right in it."""
    try:
        spaces = {"": Space(os.lstat(directory).st_blocks * _BLOCK_BYTES, 1)}
        with os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name if entry.is_dir(follow_symlinks=False) else ""
                spaces.setdefault(name, Space()).add(below(entry.path))
    except OSError:
        return {}
    return spaces
