"""A program that takes uv's place: it makes environments, and packages of a name and a version."""

from __future__ import annotations

import sys
from pathlib import Path

#: Makes an environment as uv does, and packages as the requirements name them; `$STUB/hold` is a FIFO to wait for.
_TEXT = """\
#!{python} -I
import os, pathlib, sys, venv
stub = pathlib.Path({stub!r})
if sys.argv[1] == "venv":
    venv.create(sys.argv[-1], symlinks=True)
    with open(stub / "calls", "a") as file:
        file.write(sys.argv[-1] + "\\n")
elif sys.argv[1:3] == ["pip", "install"]:
    if (stub / "hold").exists():
        open(stub / "held", "w").close()
        (stub / "hold").read_text()
    if (stub / "fails").exists():
        sys.exit("no version of two")
    site = next(pathlib.Path(sys.argv[5]).parents[1].glob("lib/python3*/site-packages"))
    for line in open(sys.argv[-1]):
        name, _, version = line.strip().partition("==")
        folder = site / f"{{name}}-{{version}}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {{name}}\\nVersion: {{version}}\\n")
else:
    sys.exit(1)
"""


def write(place: Path) -> None:
    """Write the program into a directory, for PATH; it notes its calls there."""
    place.mkdir()
    (place / "uv").write_text(_TEXT.format(python=sys.executable, stub=str(place)))
    (place / "uv").chmod(0o755)
