"""Open the dashboard of your own cluster: start it if necessary, and print a link for a single login.

With the options of `--serve` (`--rest`, `--login` …) it serves in the foreground, as a site's service does. `pip
install 'spritz[dashboard]'` installs the packages that it needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from spritz import installed
from spritz.cli.local import daemons, rest
from spritz.cli.local.paths import ClusterPaths
from spritz.client.errors import ClientError
from spritz.client.locate import find_slurm_conf
from spritz.extras import pip_install
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.cli.call.context import Context

MODULE = "spritz.web.main"
#: Packages that the dashboard imports and Spritz itself does not need.
_NEEDS = ("starlette", "uvicorn", "jinja2", "aiohttp")
_START_SECONDS = 30.0
#: The dashboard's port, unless another program uses it.
PORT = 6860


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster (default: your own, as `spritz up`)")
    parser.add_argument("--stop", action="store_true", help="stop it")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--serve",
        nargs="...",
        metavar="OPTIONS",
        help="serve in the foreground, as a site's service does (`--serve --help` lists further options)",
    )


def run(arguments: Namespace, context: Context) -> int:
    """0. Raises SpritzError if the dashboard cannot be started."""
    if arguments.serve is not None:
        command = installed.python(MODULE, *arguments.serve)
        context.stdout.flush()
        os.execve(command[0], command, dict(context.environ))
    paths = ClusterPaths.of(arguments.dir or _selected_root(context))
    if arguments.stop:
        stop(paths)
        return 0
    if not os.path.exists(paths.slurm_conf) or daemons.living(paths)["slurmctld"] is None:
        raise SpritzError(f"no cluster runs in {paths.root}", hint=_alternative(paths))
    # slurmrestd lacks the same packages, but its message names another extra.
    check_installed()
    environ = {name: value for name, value in context.environ.items() if not name.startswith(("SLURM", "SBATCH_"))}
    rest.start(paths, environ)
    link = start(paths, environ)
    if arguments.json:
        context.out(json.dumps({"link": link, "pid": pid_of(paths)}) + "\n")
    else:
        context.out(f"{link}\n")
    return 0


def _alternative(paths: ClusterPaths) -> str:
    """Advice for a user whose cluster does not run on this machine."""
    try:
        used = find_slurm_conf()
    except ClientError:
        used = paths.slurm_conf
    if used == paths.slurm_conf:
        return "start one with `spritz up`"
    return (
        f"commands use the cluster of {used}: its administrator runs `spritz dashboard` on the controller's machine,"
        " or a service for all users (docs/how-to/dashboard.md)"
    )


def _selected_root(context: Context) -> str:
    """The directory of the cluster that SLURM_CONF names, if `spritz up` made it; else ""."""
    path = context.environ.get("SLURM_CONF", "")
    root = os.path.dirname(os.path.dirname(path))
    return root if path and ClusterPaths(root).slurm_conf == path and os.path.isdir(ClusterPaths(root).run) else ""


def missing() -> str:
    """The first package that the dashboard needs and that is not installed; "" if all are installed."""
    return next((name for name in _NEEDS if find_spec(name) is None), "")


def check_installed() -> None:
    """Raises SpritzError if a package that the dashboard needs is missing."""
    if needed := missing():
        raise SpritzError(f"the dashboard needs {needed}, which is not installed", hint=pip_install("dashboard"))


def directory(paths: ClusterPaths) -> str:
    """The directory of the dashboard's secret and address."""
    return os.path.join(paths.run, "dashboard")


def pid_of(paths: ClusterPaths) -> int | None:
    """Pid of the dashboard's process, None if it does not run."""
    return daemons.daemon_pid("", MODULE, directory(paths))


def launch(paths: ClusterPaths, environ: dict[str, str]) -> subprocess.Popen[bytes] | None:
    """Start the dashboard unless it runs, without waiting until it serves. None if it runs already."""
    if pid_of(paths) is not None:
        return None
    os.makedirs(directory(paths), mode=0o700, exist_ok=True)
    try:
        os.unlink(os.path.join(directory(paths), "dashboard.json"))
    except FileNotFoundError:
        pass
    command = installed.python(
        MODULE, "--directory", directory(paths), "--rest", f"unix:{paths.rest_socket}", "--listen",
        f"127.0.0.1:{PORT}", "--any-port",
    )  # fmt: skip
    with open(log_of(paths), "wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environ, "SLURM_CONF": paths.slurm_conf},
            cwd="/",
            start_new_session=True,
        )


def log_of(paths: ClusterPaths) -> str:
    return os.path.join(paths.log, "dashboard.log")


def start(paths: ClusterPaths, environ: dict[str, str]) -> str:
    """Start the dashboard unless it runs; return a link for a single login. Raises SpritzError."""
    return link_of(paths, launch(paths, environ))


def link_of(paths: ClusterPaths, child: subprocess.Popen[bytes] | None) -> str:
    """Wait until the dashboard serves; return a link for a single login. Raises SpritzError with its output.

    `child`: the process from `launch`; None if the dashboard was running already.
    """
    state = os.path.join(directory(paths), "dashboard.json")
    deadline = time.monotonic() + _START_SECONDS
    while not os.path.exists(state):
        if time.monotonic() > deadline or (child is not None and child.poll() is not None):
            with open(log_of(paths), encoding="utf-8", errors="replace") as log:
                output = log.read(2000).strip()
            raise SpritzError(
                output.splitlines()[-1] if output else "the dashboard did not start", hint=f"its log is {log_of(paths)}"
            )
        time.sleep(0.02)
    printed = subprocess.run(
        installed.python(MODULE, "--directory", directory(paths), "--link"), capture_output=True, text=True, check=False
    )
    if printed.returncode:
        raise SpritzError(printed.stderr.strip() or "the dashboard gives no link")
    return printed.stdout.strip()


def stop(paths: ClusterPaths) -> None:
    """Stop the dashboard if it runs. Raises SpritzError if it does not stop."""
    pid = pid_of(paths)
    if pid is not None and not daemons.stop(pid):
        raise SpritzError(f"the dashboard (pid {pid}) does not stop", hint=f"its log is {log_of(paths)}")
