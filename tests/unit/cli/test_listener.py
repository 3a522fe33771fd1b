"""A step on more nodes than srun may have files open."""

from __future__ import annotations

import subprocess
import sys

_MANY = """
import _socket, resource
from spritz.cli.jobs.launch.listener import Listener

listener = Listener()
clients = []
for _ in range(120):
    client = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    client.connect("\\0" + listener.address.removeprefix("unix:@"))
    clients.append(client)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(clients) + 40, HARD))
taken = 0
while listener.accept() is not None:
    taken += 1
print(taken)
"""


def _taken(hard: str) -> int:
    script = _MANY.replace("HARD", hard)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_every_supervisor_is_taken_where_only_the_soft_limit_is_in_the_way() -> None:
    assert _taken("400") == 120


def test_the_hard_limit_stays() -> None:
    assert 0 < _taken("len(clients) + 40") < 120
