"""Queue a sweep, and show its trials in the terminal until they have ended."""

from __future__ import annotations

import time
from collections import Counter

from spritz.experiments.interface import Terminal, tell_unfrozen
from spritz.experiments.job import states, submission
from spritz.experiments.records.store import Store
from spritz.experiments.sweeps import queue, report
from spritz.experiments.sweeps.plan import Plan
from spritz.experiments.sweeps.sweep import Sweep

_LOOK_SECONDS = 1.0


def launch(plan: Plan, request: submission.Request, store: Store, terminal: Terminal, *, detach: bool) -> int:
    """Queue the sweep and, unless detached, wait for its end; return the exit status. Ctrl-C stops the sweep."""
    sweep = queue.launch(plan, request, store)
    terminal.out(f"{sweep.name}\n")
    tell_unfrozen(queue.code_of(sweep), terminal)
    terminal.err(
        f"Submitted batch job {sweep.arrays[-1]} with {sweep.size} trials; `spritz sweep --status {sweep.name}` "
        "shows them\n"
    )
    if detach:
        return 0
    try:
        return follow(sweep, store, terminal)
    except KeyboardInterrupt:
        terminal.err(f"\nspritz: stopping the sweep; `spritz sweep --resume {sweep.name}` goes on\n")
        queue.stop(sweep, store)
        return 130


def follow(sweep: Sweep, store: Store, terminal: Terminal) -> int:
    """Wait until all trials have ended; print their results on the way."""
    printed = ""
    while True:
        entries = queue.entries_of(sweep, store)
        count = Counter(entry.state for entry in entries)
        words = ", ".join(f"{number} {state.lower()}" for state, number in sorted(count.items()))
        if words != printed:
            printed = words
            terminal.err(f"spritz: {words}\n")
        if set(count) <= states.ENDED:
            break
        time.sleep(_LOOK_SECONDS)
    terminal.out(report.text(sweep, report.rows(sweep, entries), 20))
    return 0 if set(count) <= {"COMPLETED", "PRUNED"} else 1
