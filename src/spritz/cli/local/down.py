"""Stop the cluster. Running jobs are cancelled first; queued jobs stay for the next `spritz up`.

`--keep-jobs` lets running jobs continue without daemons; the next `spritz up` finds them again.
"""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING

from spritz.cli.call.context import Context
from spritz.cli.local import daemons, dashboard, rest, units
from spritz.cli.local.join import member_paths
from spritz.cli.local.paths import ClusterPaths
from spritz.cli.local.units import Unit
from spritz.client.command.sync import connect_controller
from spritz.client.locate import candidates, locate_controller
from spritz.client.trust.membership import MACHINE_FILE, find_membership
from spritz.model.commands.job import CancelJobs, CancelResult, Done
from spritz.model.errors import SpritzError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.daemons import PauseScheduling
from spritz.model.queries.jobs import JobRows, ListJobs

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster")
    parser.add_argument("--keep-jobs", action="store_true", help="keep running jobs; the next `spritz up` adopts them")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=40.0, help="seconds to wait for jobs to end (default: 40)"
    )
    units.add_directory(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors")


def run(arguments: Namespace, context: Context) -> int:
    """Stop the daemons. 0 also when none was running."""
    paths = ClusterPaths.of(arguments.dir)
    if arguments.dir is None and not os.path.exists(paths.slurm_conf):
        paths = member_paths(None, context)
    if (role := joined_role(paths)) is not None:
        return _leave(paths, role, arguments, context)
    dashboard.stop(paths)
    rest.stop(paths)
    alive = daemons.living(paths)
    own_units = [Unit(paths, arguments.unit_directory, name) for name in ("slurmd", "slurmctld", "slurmdbd")]
    if not any(alive.values()):
        units.stop_installed(own_units)
        if not arguments.quiet:
            context.out(f"Not running: {paths.root}\n{_elsewhere(paths, context)}")
        return 0
    if alive["slurmctld"] and not arguments.keep_jobs:
        _end_jobs(paths, arguments.timeout, context, quiet=arguments.quiet)
    # slurmdbd last, so that it records the last events of the other daemons.
    for name in ("slurmd", "slurmctld", "slurmdbd"):
        pid = daemons.stop_named(paths, name)
        if pid is not None:
            raise SpritzError(f"{name} (pid {pid}) does not stop", hint=f"its log is in {paths.log}")
    units.stop_installed(own_units)
    if not arguments.quiet:
        context.out(f"Down: {paths.root}\n{_instead(paths)}")
    return 0


def _instead(paths: ClusterPaths) -> str:
    """A line about the machine's own cluster, which commands do not find as long as the user's has files; or ""."""
    others = [path for path in candidates() if os.path.exists(path)]
    if len(others) < 2 or others[0] != paths.slurm_conf or os.path.realpath(others[1]) == os.path.realpath(others[0]):
        return ""
    return f"Commands of this user still look for it; without {paths.root} they use the cluster of {others[1]}.\n"


def joined_role(paths: ClusterPaths) -> str | None:
    """This machine's role in a cluster that it has joined ("node", "login"); None if the directory has a cluster."""
    if not os.path.exists(os.path.join(paths.etc, MACHINE_FILE)):
        return None
    membership = find_membership(paths.slurm_conf)
    return membership.joined.role if membership is not None and membership.joined is not None else None


def _leave(paths: ClusterPaths, role: str, arguments: Namespace, context: Context) -> int:
    """Stop this machine's daemon. Its jobs continue; `spritz join` starts the daemon again."""
    pid = daemons.member(paths, role)
    if pid is not None and not daemons.stop(pid):
        raise SpritzError(f"pid {pid} does not stop", hint=f"its log is in {paths.log}")
    units.stop_installed([Unit(paths, arguments.unit_directory, daemons.of_role(role))])
    if not arguments.quiet:
        context.out(f"{'Not running' if pid is None else 'Down'}: {paths.root}\n")
    return 0


def _elsewhere(paths: ClusterPaths, context: Context) -> str:
    """A line about the running cluster that this shell's commands use, if it is another: the user may have meant it."""
    etc, name = os.path.split(context.environ.get("SLURM_CONF", ""))
    other = ClusterPaths(os.path.dirname(etc))
    if name != "slurm.conf" or other.etc != etc or other.root == paths.root or not any(daemons.living(other).values()):
        return ""
    return f"SLURM_CONF names {other.root}: `spritz down --dir {shlex.quote(other.root)}` stops that cluster.\n"


def _end_jobs(paths: ClusterPaths, timeout_seconds: float, context: Context, *, quiet: bool) -> None:
    """Cancel running jobs and wait until their processes are gone. External jobs belong to another system, and stay."""
    begun = ("RUNNING", "SUSPENDED", "CONFIGURING")
    deadline = time.monotonic() + timeout_seconds
    with connect_controller(locate_controller(paths.slurm_conf)) as controller:
        # Queued jobs must not start on the resources of the cancelled jobs.
        controller.call(PauseScheduling(), Done)

        def here(states: tuple[str, ...]) -> list[int]:
            query = ListJobs(filter=JobFilter(states=states), fields=("id", "spec.external"), all=True)
            rows = (row for piece in controller.stream(query, JobRows) for row in piece.rows)
            return [int(str(job_id)) for job_id, external in rows if not external]

        def remaining() -> list[int]:
            return here((*begun, "COMPLETING"))

        targets = remaining()
        if not targets:
            return
        count = len(here(begun))
        if count and not quiet:
            context.out(f"Ending {count} running job{'' if count == 1 else 's'} …\n")
            context.stdout.flush()
        running = JobFilter(targets=tuple(map(JobTarget, targets)), states=("RUNNING", "SUSPENDED"))
        controller.call(CancelJobs(filter=running), CancelResult)
        while remaining():
            if time.monotonic() > deadline:
                raise SpritzError(
                    f"jobs are still ending after {timeout_seconds:.0f} s",
                    hint="try again, or `spritz down --keep-jobs` to leave them",
                )
            time.sleep(0.05)
