"""The command line of the simulation with one rule, which the first fault violates: something to shrink and replay."""

from __future__ import annotations

import sys

from spritz_testing.daemons.history import Injected
from spritz_testing.daemons.main import main
from spritz_testing.daemons.runs import run
from spritz_testing.daemons.site import Site
from spritz_testing.daemons.system.world import EPOCH


def no_fault_happens(site: Site) -> list[run.Violation]:
    found = [entry for entry in site.history.entries if isinstance(entry, Injected)]
    return [("no fault happens", entry.at - EPOCH, entry.kind) for entry in found[:1]]


if __name__ == "__main__":
    run.CHECKS[:] = [no_fault_happens]
    sys.exit(main(sys.argv[1:]))
