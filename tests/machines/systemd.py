"""systemd on a machine of the tests, which `systemctl.py` plays."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.machines.lan import Machine

NODE_UNIT, LOGIN_UNIT = "spritz-slurmd.service", "spritz-sackd.service"
#: Of a cluster that `spritz up --systemd` made.
CLUSTER_UNITS = ("spritz-slurmctld.service", NODE_UNIT, "spritz-slurmdbd.service")


class Systemd:
    """A machine's systemd, played by `systemctl.py`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.units = machine.own / "units"
        self.units.mkdir()
        program = machine.own / "bin" / "systemctl"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("systemctl.py")} "$@"\n')
        program.chmod(0o755)
        self.environ = {"PATH": f"{program.parent}:{machine.environ['PATH']}", "UNITS": str(self.units)}

    def join(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`spritz join --systemd`."""
        return self.command("join", "--systemd", *words)

    def command(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """`spritz up`, `join` or `down`, with this systemd's units."""
        where = ("--unit-directory", str(self.units))
        return self.machine.run("spritz", verb, *words, *where, user="root", timeout=60.0, stdin=None, **self.environ)

    def boot(self) -> None:
        """Power off, and on again: /run is empty then."""
        self.machine.crash()
        shutil.rmtree(self.machine.own / "run/slurm", ignore_errors=True)
        self.machine.out("systemctl", "boot", **self.environ)

    def started_ns(self, unit: str) -> int:
        """When the unit's daemon was started last; its number may come again after a boot."""
        return (self.units / f"{unit}.pid").stat().st_mtime_ns

    def pid(self, unit: str) -> int:
        """Of the unit's daemon."""
        return int((self.units / f"{unit}.pid").read_text())

    def life(self, unit: str) -> tuple[int, int]:
        """Process id and start of the unit's daemon: after a boot another daemon may have the same id."""
        pid = self.pid(unit)
        return pid, int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def token(alpha: Machine, role: str) -> list[str]:
    """Address and token that join another machine."""
    line = alpha.out("spritz", "token", "create", "--role", role, "--uses", "1").split()
    return line[line.index("join") + 1 :]


def checked(*units: Path) -> None:
    """systemd itself finds nothing wrong with the units."""
    if shutil.which("systemd-analyze") is not None:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, timeout=100, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
