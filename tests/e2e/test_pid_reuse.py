"""A process id that a task had is a stranger's by the time that slurmd cleans up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow]

#: Runs as the first process of a pid namespace: a cluster, a step of two tasks of which one ends, a stranger in the
#: session of that number, and the end of the step's supervisor by SIGKILL.
SCRIPT = """
import os, signal, subprocess, sys, time
from pathlib import Path

place = Path(sys.argv[1])
os.environ |= {"SPRITZ_NO_SERVER": "1", "SLURM_CONF": f"{place}/c/etc/slurm.conf"}

def until(condition):
    deadline = time.monotonic() + 100
    while not (value := condition()):
        assert time.monotonic() < deadline, condition
        time.sleep(0.02)
    return value

def name_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""

def stranger(number):
    '''A process with that number, which leads a session, of a user who has no jobs.'''
    while True:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1))
        pid = os.fork()
        if not pid:
            if os.getpid() == number:
                os.setsid()
                os.setuid(65534)
                os.execv("/bin/sleep", ["sleep", "1000"])
            os._exit(0)
        if pid == number:
            return
        os.waitpid(pid, 0)

subprocess.run(["spritz", "up", "--dir", f"{place}/c", "--nodes", "1", "--no-dashboard", "-q"], check=True)
task = f'echo $$ > {place}/pid.$SLURM_PROCID.new; mv {place}/pid.$SLURM_PROCID.new {place}/pid.$SLURM_PROCID; '
task += '[ $SLURM_PROCID = 0 ] || exec sleep 1000'
step = subprocess.Popen(["srun", "-n2", "--wait=0", "sh", "-c", task], stderr=subprocess.DEVNULL)
ended, running = (int(until(lambda: (path := place / f"pid.{n}").exists() and path.read_text())) for n in (0, 1))
until(lambda: not name_of(ended))
stranger(ended)
until(lambda: name_of(ended) == "sleep")
for pid in filter(str.isdecimal, os.listdir("/proc")):
    if name_of(pid) == "slurmstepd":
        os.kill(int(pid), signal.SIGKILL)
until(lambda: name_of(running) == "")
step.wait()
print("the stranger lives" if name_of(ended) == "sleep" and os.waitpid(ended, os.WNOHANG) == (0, 0) else "killed")
subprocess.run(["spritz", "down", "--dir", f"{place}/c"], check=True, stdout=subprocess.DEVNULL)
"""


def test_a_stranger_with_an_ended_tasks_number_outlives_the_supervisor(tmp_path: Path) -> None:
    namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    probe = [*namespace, "sh", "-c", "echo 300 > /proc/sys/kernel/ns_last_pid"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("takes a pid namespace whose next number can be set")
    done = subprocess.run(
        [*namespace, sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.stdout.splitlines()[-1:] == ["the stranger lives"], done.stdout + done.stderr
