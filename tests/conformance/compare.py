"""Run a transcript's commands on a real Slurm and on ours, and print what differs.

    python -m tests.conformance.compare REAL/slurm.conf OURS/slurm.conf FILE.txt [words of case names]

FILE.txt is in the format of README.md; expected lines may be left out, since those of the real one take their place.
Nothing is written: `record` keeps what is worth keeping.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .cluster import known_values
from .record import record_case
from .transcript import Mismatch, Place, parse, play


def main(arguments: list[str]) -> int:
    real, ours, path, *words = arguments
    differing = total = 0
    for case in parse(Path(path)):
        if words and not any(word in case.name for word in words):
            continue
        with tempfile.TemporaryDirectory(prefix="golden-") as name:
            record_case(case, _place(Path("/usr/bin"), Path(real), Path(name), real=True))
        total += len(case.steps)
        with tempfile.TemporaryDirectory(prefix="golden-") as name:
            try:
                play(case, _place(Path(sys.executable).parent, Path(ours), Path(name), real=False))
            except Mismatch as mismatch:
                print(mismatch)
                differing += sum(line.startswith("$ ") for line in str(mismatch).splitlines())
    print(f"{total - differing} of {total} commands are the same")
    return 1 if differing else 0


def _place(binaries: Path, conf: Path, directory: Path, *, real: bool) -> Place:
    directory.chmod(0o777)
    known = {**known_values(conf), "cwd": str(directory)}
    return Place(binaries, conf, directory, known, slow_to_free_nodes=real, hints=not real)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
