"""What a command pays for being on another machine: the same request straight to the controller's socket, and by way of
a login host's daemon, over a warm TLS link with a credential for each connection. Needs root (namespaces).

    python -m benchmarks.machines

Prints medians in milliseconds; the goal is a difference of at most 1 ms.
"""

from __future__ import annotations

import sys

from tests.machines.conftest import joined
from tests.machines.lan import Lan

_ASK = """
import statistics, sys, time
from spritz.client.locate import locate_controller
from spritz.client.command.sync import connect_controller
from spritz.model.queries.daemons import Ping, Pong
config = locate_controller()
taken, kept = [], []
for _ in range(1000):
    began = time.perf_counter()
    with connect_controller(config) as controller:
        controller.call(Ping(), Pong)
    taken.append(time.perf_counter() - began)
with connect_controller(config) as controller:
    for _ in range(1000):
        began = time.perf_counter()
        controller.call(Ping(), Pong)
        kept.append(time.perf_counter() - began)
print(*(f"{1000 * statistics.median(found[100:]):.3f}" for found in (taken, kept)), "ssl" in sys.modules)
"""


def main() -> None:
    """Measure and print."""
    with Lan() as lan:
        alpha = lan.machine("alpha")
        alpha.out("spritz", "up", "--listen", alpha.address, "--quiet")
        gamma = joined(alpha, lan.machine("gamma"), "login")
        print("                          connect+call  call on a kept connection   imports ssl")
        found = []
        for name, machine in (("on the controller's", alpha), ("on a login host", gamma)):
            found.append(machine.out(sys.executable, "-c", _ASK).split())
            print(f"{name:<26}{found[-1][0]:>9} ms {found[-1][1]:>19} ms {found[-1][2]:>20}")
        more = [float(there) - float(here) for here, there in zip(found[0][:2], found[1][:2], strict=True)]
        print(f"{'difference':<26}{more[0]:>9.3f} ms {more[1]:>19.3f} ms")


if __name__ == "__main__":
    main()
