"""What does the start of a warm container cost above a plain step?

Run with `python -m benchmarks.containers [--rounds N]`. Steps of one allocation, in turns: plain, in a directory, in an
archive that has been unpacked, and in an OCI bundle by runc where that runs. Milliseconds of `srun`, as whole
processes, and how much each is above the plain step of its own round. Images are made of this machine's files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.e2e.images import make_root

from .cluster import Cluster

_ID = "%n.%u.%j.%s.%t"


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(inside(json.loads(given.inside), given.rounds)))
        return
    cluster = Cluster("ours", Path(sys.executable).parent)
    with tempfile.TemporaryDirectory(prefix="spritz-bench-", dir="/tmp") as scratch:
        directory = Path(scratch)
        os.environ["XDG_CACHE_HOME"] = str(directory / "cache")
        kinds = _kinds(directory)
        if "bundle" in kinds:
            (Path(cluster.directory) / "oci.conf").write_text(_conf(directory))
        try:
            cluster.start()
            module = [sys.executable, "-m", "benchmarks.containers", "--inside", json.dumps(kinds)]
            root = str(Path(__file__).parent.parent)
            said = cluster.run(
                "salloc", "-Q", "-N1", "-n8", "-D", root, *module, "--rounds", str(given.rounds), timeout=600
            )
        finally:
            cluster.stop()
    times = json.loads(said.splitlines()[-1])
    plain = times["plain"]
    for kind, taken in times.items():
        above = [one - other for one, other in zip(taken, plain, strict=True)]
        print(json.dumps({"kind": kind, "srun_ms": round(median(taken), 1), "above_plain_ms": round(median(above), 1)}))


def inside(kinds: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    """In an allocation: milliseconds of each step, by kind, in the order of the rounds."""
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        for kind, options in kinds.items():
            began = time.perf_counter()
            subprocess.run(["srun", "-n1", *options, "/bin/true"], check=True, stderr=subprocess.DEVNULL)
            if number:  # the first reads files, and unpacks the archive
                times[kind].append((time.perf_counter() - began) * 1000)
    return times


def _kinds(directory: Path) -> dict[str, list[str]]:
    """Options of srun."""
    root = make_root(directory / "bundle" / "rootfs", "true")
    archive = directory / "image.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    found = {
        "plain": [],
        "directory": [f"--container-image={root}"],
        "archive": [f"--container-image={archive}"],
    }
    runc = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if runc is None:
        return found
    bundle = directory / "bundle"
    subprocess.run([runc, "spec", *([] if os.geteuid() == 0 else ["--rootless"])], cwd=bundle, check=True)
    path = bundle / "config.json"
    configuration = json.loads(path.read_text())
    configuration["process"] |= {"terminal": False, "args": ["/bin/true"]}
    path.write_text(json.dumps(configuration))
    tried = subprocess.run([runc, f"--root={directory}/tried", "run", "tried"], cwd=bundle, capture_output=True)
    return found if tried.returncode else {**found, "bundle": [f"--container={bundle}"]}


def _conf(directory: Path) -> str:
    runc = f"runc --root={directory}/runc"
    return (
        f'RunTimeQuery="{runc} state {_ID}"\nRunTimeKill="{runc} kill -a {_ID}"\n'
        f'RunTimeDelete="{runc} delete --force {_ID}"\nRunTimeRun="{runc} run {_ID} -b %b"\n'
    )


if __name__ == "__main__":
    main()
