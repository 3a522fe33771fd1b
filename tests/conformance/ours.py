"""A cluster of ours in the shape of a golden one, to try commands on.

    python -m tests.conformance.ours DIRECTORY [--site]

runs until it is interrupted. DIRECTORY must not be there; SLURM_CONF is then DIRECTORY/slurm.conf.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from .cluster import ACCOUNTED, SITE, started


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0])
    directory.mkdir(mode=0o755)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with started(Path(sys.executable).parent, directory, SITE if "--site" in arguments else ACCOUNTED) as cluster:
            print("ready:", f"SLURM_CONF={cluster.conf}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
