"""`make endurance SECONDS=3600 [SEED=N]`: real daemons under faults for so long; then the history is checked.

Exit status: 0 if every check holds, 1 if not, 77 where there can be no machines (it needs root, unshare, ip).
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from spritz_testing.daemons import checks
from spritz_testing.daemons.checks import Final, NodeShape, Rules, Violation
from spritz_testing.daemons.history import Booted, Ended, History
from tests.endurance.faults import Faults
from tests.endurance.ran import Ran
from tests.endurance.reading import read
from tests.endurance.site import Site, wait
from tests.endurance.users import User
from tests.machines.lan import Lan, missing

if TYPE_CHECKING:
    from spritz.model.job.record import Job

#: Seconds from the first process of a machine that its loss of power ends to the note that it is gone.
_CRASH_SECONDS = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="endurance", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--users", type=int, default=3)
    parser.add_argument("--pause", type=float, default=6.0, help="seconds between two faults, on average")
    parser.add_argument("--report", help="write figures and violations to this file, as JSON")
    parser.add_argument("--history", help="write what users and nodes saw to this file, a line each")
    options = parser.parse_args()
    if reason := missing():
        sys.stderr.write(f"endurance: {reason}\n")
        return 77
    with Lan() as lan:
        figures, violations = _endure(lan, options)
    figures["violations"] = [f"{one.rule}: {one.text}" for one in violations]
    text = json.dumps(figures, indent=1)
    if options.report:
        with open(options.report, "w") as file:
            file.write(text)
    sys.stdout.write(f"{text}\n")
    return 1 if violations else 0


def _endure(lan: Lan, options: argparse.Namespace) -> tuple[dict[str, Any], list[Violation]]:
    history = History()
    site = Site(lan, options.nodes, options.seed)
    scripts: dict[str, str] = {}
    memory: dict[str, int] = {}
    recorder = Ran(site.work / "lines", history, scripts, memory)
    users = [User(site, history, number, options.seed, 1.0) for number in range(options.users)]
    faults = Faults(site, history, options.seed, options.pause)
    for user in users:
        user.start(scripts, memory)
    injecting = threading.Thread(target=faults.run, daemon=True)
    injecting.start()
    end = time.monotonic() + options.seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(60.0, left))
        jobs = sum(user.counts["submit"] for user in users)
        sys.stderr.write(f"{left:6.0f} s left, {jobs} submissions, {sum(faults.counts.values())} faults\n")
    faults.stop()
    injecting.join()
    last_fault_at = time.time()
    for user in users:
        user.stop()
    drained = wait(lambda: _is_drained(site), 600.0)
    time.sleep(3.0)
    recorder.stop()  # first: what begins after the reading is not in it
    final = _final(site, options.nodes, last_fault_at, drained)
    site.close()
    _doubt_ends(history, {job.id: job for job in final.jobs})
    if options.history:
        with open(options.history, "w") as file:
            file.writelines(f"{entry!r}\n" for entry in history.entries)
    asked: Counter[str] = Counter()
    for user in users:
        asked.update(user.counts)
    figures = {
        "seconds": options.seconds,
        "seed": options.seed,
        "requests": dict(asked),
        "faults": dict(faults.counts),
        "starts_of_daemons": {name: daemon.starts for name, daemon in site.daemons.items()},
        "jobs": len(final.jobs),
        "drained": drained,
    }
    return figures, checks.check(history, final)


def _doubt_ends(history: History, jobs: dict[int, Job]) -> None:
    """Say of ends what the recorder can know: a script writes its status down before it exits, and nobody but its
    supervisor sees what kills it.

    A script that wrote nothing was killed, by what the controller says. So was one that wrote its status, if its
    machine lost power before it exited. These machines share a kernel: to slurmd none has booted, and what died with
    its machine was killed.
    """
    booted: dict[str, list[float]] = {}
    for entry in history.entries:
        if isinstance(entry, Booted):
            booted.setdefault(entry.node, []).append(entry.at)
    for entry in history.entries:
        job = jobs.get(entry.job_id) if isinstance(entry, Ended) else None
        if not isinstance(entry, Ended) or job is None:
            continue
        lost_power = any(0 <= at - entry.at < _CRASH_SECONDS for at in booted.get(entry.node, ()))
        if lost_power and entry.restart_count != job.restart_count:
            entry.lost = True
        elif entry.lost or (lost_power and job.exit_status != entry.exit_code << 8):
            entry.lost, entry.exit_code, entry.signal = False, 0, job.exit_status & 0x7F or 9


def _is_drained(site: Site) -> bool:
    done = site.login_run("squeue", "-h", "-a", "-o", "%A")
    return done.returncode == 0 and not done.stdout.strip()


def _final(site: Site, nodes: int, last_fault_at: float, drained: bool) -> Final:
    """Read all jobs as a client does."""
    told = read(site)
    return Final(
        read_at=time.time(),
        jobs=tuple(told.jobs),
        scripts={job_id: script.decode() for job_id, script in told.scripts.items()},
        last_fault_at=last_fault_at,
        drained=drained,
        clock_error_seconds=1.5,
        rules=Rules(
            nodes=tuple(NodeShape(name=f"n{number}", memory_mib=4000) for number in range(1, nodes + 1)),
            controllers=frozenset({"alpha"}),
            kill_wait_seconds=3.0,
            min_job_age_seconds=3600.0,
            boots_show=False,
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
