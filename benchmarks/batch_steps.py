"""How many steps a second does a batch script run, one after the other, on a node with a host name of its own?

    python -m tests.conformance.ours /tmp/ours --site &
    python -m tests.conformance.real /tmp/real --site &      # as root, with Debian's Slurm
    python -m benchmarks.batch_steps --ours /tmp/ours/slurm.conf --real /tmp/real/slurm.conf [--user alice]

Both in turns; the whole script's time, its first calls included. One JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_SCRIPT = """\
#!/bin/bash
began=$(date +%s%N)
for step in $(seq {steps}); do srun -n1 true || exit 1; done
echo $(($(date +%s%N) - began))
"""


def steps_per_second(binaries: Path, conf: Path, user: str, steps: int) -> float:
    """One job's. Raises SystemExit with what the job said where it failed."""
    account = pwd.getpwnam(user)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        os.chown(place, account.pw_uid, account.pw_gid)
        env = {"PATH": f"{binaries}:/usr/bin:/bin", "HOME": account.pw_dir, "USER": user, "SLURM_CONF": str(conf)}
        done = subprocess.run(
            [binaries / "sbatch", "--wait", "--exclusive", "--output=out"],
            input=_SCRIPT.format(steps=steps),
            env=env,
            cwd=place,
            capture_output=True,
            text=True,
            user=account.pw_uid if os.getuid() == 0 else None,
            group=account.pw_gid if os.getuid() == 0 else None,
            extra_groups=[] if os.getuid() == 0 else None,
        )
        said = (place / "out").read_text() if (place / "out").exists() else ""
        if done.returncode:
            raise SystemExit(f"{binaries}: {done.stderr}{said}")
        return steps / (int(said.split()[-1]) / 1e9)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ours", type=Path, metavar="SLURM_CONF")
    parser.add_argument("--real", type=Path, metavar="SLURM_CONF")
    parser.add_argument("--user", default=pwd.getpwuid(os.getuid()).pw_name)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    binaries = {"ours": Path(sys.executable).parent, "real": Path("/usr/bin")}
    systems = {name: conf for name in binaries if (conf := getattr(given, name))}
    found: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(given.rounds):
        for name, conf in systems.items():
            found[name].append(steps_per_second(binaries[name], conf, given.user, given.steps))
    for name, values in found.items():
        rounded = [round(value, 1) for value in values]
        print(json.dumps({"system": name, "steps_per_second": statistics.median(rounded), "values": rounded}))


if __name__ == "__main__":
    main()
