"""A `systemctl` for machines without systemd: it starts units of Type=notify as systemd does, and waits for READY=1.

Put on PATH as `systemctl`; $UNITS is where units are. Not more than `spritz up --systemd`, `spritz join --systemd` and
these tests use. A daemon that dies is not restarted.
Sources: systemctl(1), systemd.service(5) COMMAND LINES, sd_notify(3).
"""

import configparser
import os
import shlex
import signal
import socket
import subprocess
import sys
import time

UNITS = os.environ["UNITS"]
WANTED = os.path.join(UNITS, "multi-user.target.wants")
START_SECONDS = 90.0


def main(words: list[str]) -> int:
    verb, units = words[0], [os.path.basename(word) for word in words[1:] if not word.startswith("-")]
    if verb == "daemon-reload":
        return 0
    if verb == "boot":  # none of systemctl's: what systemd does by itself
        return max([start(name) for name in sorted(os.listdir(WANTED))], default=1)
    return max(act(verb, unit, now="--now" in words) for unit in units)


def act(verb: str, unit: str, *, now: bool) -> int:
    if not os.path.exists(os.path.join(UNITS, unit)):
        sys.stderr.write(f"Failed to {verb} unit: Unit file {unit} does not exist.\n")
        return 1
    if verb == "enable":
        os.makedirs(WANTED, exist_ok=True)
        if not os.path.exists(os.path.join(WANTED, unit)):
            os.symlink(os.path.join(UNITS, unit), os.path.join(WANTED, unit))
        return start(unit) if now else 0
    if verb in ("stop", "restart"):
        stop(unit)
    if verb in ("start", "restart"):
        return start(unit)
    if verb == "stop":
        return 0
    sys.stderr.write(f"Unknown command verb {verb}.\n")
    return 1


def main_pid(unit: str) -> int:
    """Of the unit's daemon; 0 if it does not run."""
    try:
        with open(os.path.join(UNITS, f"{unit}.pid")) as file:
            pid = int(file.read())
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return 0 if file.read().rpartition(")")[2].split()[0] == "Z" else pid
    except (OSError, ValueError):
        return 0


def stop(unit: str) -> None:
    pid = main_pid(unit)
    if pid:
        os.kill(pid, signal.SIGTERM)
    while main_pid(unit):
        time.sleep(0.01)


def start(unit: str) -> int:
    """As `systemctl start`: a unit with Restart= that fails before it is ready is waited for, however often it is."""
    while not started(unit):
        time.sleep(0.2)
    return 0


def words_of(line: str) -> list[str]:
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]


def started(unit: str) -> bool:
    if main_pid(unit):
        return True
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says
    parser.read(os.path.join(UNITS, unit))
    service = parser["Service"]
    assert service["Type"] == "notify", "no other type is known here"
    command = words_of(service["ExecStart"])
    if directory := service.get("RuntimeDirectory"):
        os.makedirs(f"/run/{directory}", exist_ok=True)
    address = os.path.join(UNITS, f"{unit}.notify")
    if os.path.exists(address):
        os.unlink(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, open(f"{address}.out", "ab") as output:
        notify.bind(address)
        notify.settimeout(0.1)
        daemon = subprocess.Popen(
            command,
            # Nothing of the caller's: that is what a daemon at boot has.
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NOTIFY_SOCKET": address},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            start_new_session=True,
        )
        with open(os.path.join(UNITS, f"{unit}.pid"), "w") as file:
            file.write(str(daemon.pid))
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and daemon.poll() is None:
            try:
                if b"READY=1" in notify.recv(4096):
                    if after := service.get("ExecStartPost"):
                        subprocess.run(words_of(after), check=True)
                    return True
            except TimeoutError:
                continue
    daemon.kill()
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
