"""systemd units of a machine's daemons: `spritz up --systemd` and `spritz join --systemd` write and start them.

Each daemon has a unit of its own, of Type=notify, so systemd restarts a daemon that dies and ends one that hangs. A
single unit that ran `spritz up` at boot would leave both to an administrator.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from spritz.client.locate import RUN_DIRECTORY
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

    from spritz.cli.local.paths import ClusterPaths

#: Seconds for the daemons of started units to serve.
START_SECONDS = 30.0

_DIRECTORY = "/etc/systemd/system"

_UNIT = """\
# Written by `spritz {verb} --systemd`. `systemctl edit {unit}` keeps changes.
[Unit]
Description=Slurm {what} (Spritz{joined})
After=network-online.target remote-fs.target{after}
Wants=network-online.target

[Service]
Type=notify
ExecStart={command}
{publish}ExecReload=/bin/kill -HUP $MAINPID
{limits}SyslogIdentifier={name}
Restart=on-failure
RestartSec=2
WatchdogSec=5min

[Install]
WantedBy=multi-user.target
"""

#: Line in the unit of the default cluster, which commands use unless another one is named.
_PUBLISHED = """\
# /run is empty after a boot: commands find the cluster by this link.
RuntimeDirectory={runtime}
RuntimeDirectoryPreserve=yes
ExecStartPost={link}
"""

_NODE_LIMITS = """\
# Jobs outlive the daemon.
KillMode=process
Delegate=yes
LimitNOFILE=131072
LimitMEMLOCK=infinity
LimitSTACK=infinity
TasksMax=infinity
"""

#: By daemon: what it is, units to start it after, lines of its own.
_KINDS = {
    "slurmctld": ("controller", "", "LimitNOFILE=65536\n"),
    "slurmdbd": (
        "accounting",
        "",
        "# A new release may first migrate a large database.\nTimeoutStartSec=infinity\nLimitNOFILE=65536\n",
    ),
    "slurmd": ("node daemon", " spritz-slurmctld.service", _NODE_LIMITS),
    "sackd": ("login daemon", "", "LimitNOFILE=131072\n"),
}


class Unit:
    """The unit of a daemon, recognized by the configuration file on the daemon's command line."""

    def __init__(self, paths: ClusterPaths, directory: str, daemon: str) -> None:
        self._daemon = daemon
        self._conf = paths.slurmdbd_conf if daemon == "slurmdbd" else paths.slurm_conf
        # The plain name, unless that starts the daemon of another cluster on this machine.
        name = os.path.join(directory, f"spritz-{daemon}")
        self.path = f"{name}.service"
        if os.path.exists(self.path) and not self.is_installed:
            self.path = f"{name}-{re.sub('[^A-Za-z0-9_.]', '-', os.path.basename(paths.root))}.service"
        self.name = os.path.basename(self.path)

    @property
    def is_installed(self) -> bool:
        """Whether the unit exists: a daemon that is started without it would keep it from starting."""
        return unit_command([self._conf]) in self._text()

    def write(self, verb: str, command: list[str], published: str) -> bool:
        """Write the unit for `spritz {verb}`; whether that changed it. Raises SpritzError.

        `published` is the directory of the slurm.conf that all users' commands are to find, or "".
        """
        what, after, limits = _KINDS[self._daemon]
        link = unit_command(["/bin/ln", "-sfn", published, RUN_DIRECTORY])
        runtime = os.path.basename(os.path.dirname(RUN_DIRECTORY))
        text = _UNIT.format(
            verb=verb,
            unit=self.name,
            what=what,
            joined=", joined" if verb == "join" else "",
            after=after if verb == "up" else "",
            command=unit_command([*command, "--systemd"]),
            publish=_PUBLISHED.format(runtime=runtime, link=link) if published else "",
            limits=limits,
            name=self._daemon,
        )
        if text == self._text():
            return False
        try:
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise SpritzError(f"cannot write {self.path}: {error.strerror}") from error
        return True

    def _text(self) -> str:
        try:
            with open(self.path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""


def add_arguments(parser: ArgumentParser, daemons: str) -> None:
    """The options of the commands that install units, of `daemons`."""
    parser.add_argument("--systemd", action="store_true", help=f"let systemd start {daemons}, now and at boot (root)")
    add_directory(parser)


def add_directory(parser: ArgumentParser) -> None:
    """The option that says where units are installed."""
    parser.add_argument("--unit-directory", metavar="DIR", default=_DIRECTORY, help="directory for systemd units")


def check_user() -> None:
    """Raises SpritzError for users who cannot install units."""
    if os.geteuid() != 0:
        raise SpritzError("--systemd is for root: units start daemons of the system")


def reload(units: Sequence[Unit]) -> None:
    """Let systemd read units that were written. Raises SpritzError."""
    _systemctl(units, "daemon-reload")


def enable(units: Sequence[Unit]) -> None:
    """Start the daemons, now and at boot. Raises SpritzError if they do not serve in time."""
    words = [unit.name if os.path.dirname(unit.path) == _DIRECTORY else unit.path for unit in units]
    _systemctl(units, "enable", "--now", *words)


def start(units: Sequence[Unit]) -> None:
    """Start the daemons. Raises SpritzError if they do not serve in time."""
    _systemctl(units, "start", *(unit.name for unit in units))


def stop_installed(units: Sequence[Unit]) -> None:
    """Stop the daemons that have units, those that systemd is about to restart too. Raises SpritzError."""
    if installed := [unit for unit in units if unit.is_installed]:
        _systemctl(installed, "stop", *(unit.name for unit in installed))


def unit_command(words: list[str]) -> str:
    """Words quoted for ExecStart. Source: systemd.service(5) COMMAND LINES, systemd.syntax(7) QUOTING."""
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$", "\n": "\\n"})
    return " ".join(f'"{word.translate(escapes)}"' for word in words)


def _systemctl(units: Sequence[Unit], *words: str) -> None:
    """Run systemctl. Raises SpritzError with its output, or if the daemons do not serve in time."""
    import tempfile  # only where units are: `spritz up` starts without it

    installed = " and ".join(unit.path for unit in units) + (" are installed" if len(units) > 1 else " is installed")
    # Not a pipe: processes that systemctl leaves running would keep it open.
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                ["systemctl", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                check=False,
                timeout=START_SECONDS,
            )
        except FileNotFoundError as error:
            raise SpritzError(f"{installed}, but there is no systemctl here") from error
        except subprocess.TimeoutExpired as error:
            raise SpritzError(
                f"{installed}; systemctl {words[0]}: not done in {START_SECONDS:.0f} s",
                hint=f"journalctl {' '.join(f'-u {unit.name}' for unit in units)} says why the daemon does not serve",
            ) from error
        if done.returncode != 0:
            output.seek(0)
            text = output.read().decode(errors="replace").strip()
            raise SpritzError(f"{installed}; systemctl {words[0]}: {text}")
