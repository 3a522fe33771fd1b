"""How many MB an installation takes, by package: `python -m tools.installed_size PREFIX …` (docs/decisions/0226).

Sums the files in site-packages and bin, bytecode included; pip and setuptools, which venv brings, are left out.
"""

from __future__ import annotations

import sys
from pathlib import Path

_OF_VENV = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence.pth")
_ROWS = 8


def size(path: Path) -> int:
    """Bytes of a file, or of all files below a directory; links count nothing."""
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.lstat().st_size for file in files if file.is_file() and not file.is_symlink())


def main(prefixes: list[str]) -> int:
    """The command."""
    for prefix in map(Path, prefixes):
        (packages,) = (prefix / "lib").glob("python3*/site-packages")
        sizes = {
            entry.name: size(entry)
            for entry in packages.iterdir()
            if not entry.name.startswith("__pycache__") and entry.name.split("-")[0] not in _OF_VENV
        }
        commands = size(prefix / "bin")
        print(f"{prefix}: {(sum(sizes.values()) + commands) / 1e6:.1f} MB, of which commands {commands / 1e6:.2f}")
        for name, count in sorted(sizes.items(), key=lambda item: -item[1])[:_ROWS]:
            print(f"{count / 1e6:8.1f} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
