"""Replay a trace of jobs in virtual time under a policy, and report waits, slowdown and utilisation.

The command line is a contract that other programs rely on: see docs/simulate.md.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from importlib import import_module
from typing import TYPE_CHECKING

from spritz.runtime.daemon.daemon_command import require
from spritz.sim.course import draw
from spritz.sim.files import check_drawable, check_writable
from spritz.sim.report import show
from spritz.sim.trace.workload import TraceError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from spritz.cli.call.context import Context
    from spritz.sim.report import Report

BREAKDOWNS = ("user", "group", "size", "queue", "name")
RUNTIMES = ("requested", "actual", "predicted")
RESERVE = ("slowdown", "fcfs")


def add_arguments(parser: ArgumentParser) -> None:
    what = parser.add_argument_group("input (one of)")
    what.add_argument(
        "trace", nargs="?", metavar="TRACE", help="Standard Workload Format, sacct -P, or a controller's journal"
    )
    what.add_argument("--gang", metavar="CSV", help="gang jobs of a GPU cluster (Muri, ITP or Philly form)")
    what.add_argument("--pods", metavar="CSV", help="pods with shares of GPUs (openb form), with --node-list")
    how = parser.add_argument_group("machine and policy")
    how.add_argument("--processors", type=_positive, metavar="N", help="TRACE: processors (default: its MaxProcs)")
    how.add_argument("--config", metavar="CONF", help="TRACE: a whole cluster, from a slurm.conf")
    how.add_argument("--against", metavar="CONF", help="TRACE: compare with a second configuration")
    how.add_argument("--nodes", type=_positive, metavar="N", help="--gang: nodes (default: 8)")
    how.add_argument("--gpus-per-node", type=_positive, metavar="N", help="--gang: GPUs of each node (default: 8)")
    how.add_argument(
        "--policy",
        metavar="P",
        help="TRACE: fcfs, easy (default), easy-sjbf, conservative, sjf, … (a wrong word lists all); "
        "--gang: fifo (default), backfill, srtf, srsf",
    )
    how.add_argument("--node-list", metavar="CSV", help="--pods: the nodes")
    how.add_argument(
        "--demand",
        type=_ratio,
        metavar="X",
        help="--pods: GPUs requested, as a multiple of those available (default: 1.3)",
    )
    how.add_argument(
        "--placement", metavar="P", help="--pods: random, bestfit, fgd (default), production or gpu_fragmentation"
    )
    how.add_argument("--runtimes", choices=RUNTIMES, help="TRACE: run times used for planning (default: requested)")
    how.add_argument(
        "--reserve",
        choices=RESERVE,
        help="predicted: which job gets the next reserved start: the one with the largest expected slowdown (default) "
        "or the first submitted",
    )
    how.add_argument(
        "--no-guarantee",
        action="store_const",
        const=True,
        help="predicted: plan reserved starts with predictions too; they may then be broken",
    )
    how.add_argument("--seed", type=_seed, metavar="S", help="seed of random choices (default: 1)")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--bound",
        type=_bound,
        metavar="S",
        help="shorter run times count as this in the slowdown (default: 10 seconds)",
    )
    output.add_argument("--by", type=_breakdowns, metavar="WHAT", help=f"TRACE: figures by {', '.join(BREAKDOWNS)}")
    output.add_argument("--starts", metavar="FILE", help="write job,start_seconds")
    output.add_argument("--plot", metavar="PNG", help="TRACE: draw use and waiting jobs over time (needs spritz[plot])")
    output.add_argument("--json", action="store_true", help="one JSON object")


#: Models of published studies by form, as a module and a function of it: a distribution of its own, by name alone.
_STUDIES = {
    "trace": ("spritz_testing.studies.processors.command", "run_swf"),
    "gang": ("spritz_testing.studies.gang.command", "run_gang"),
    "pods": ("spritz_testing.studies.pods.command", "run_pods"),
}

#: Options that only some forms accept: option -> (forms, default)
_FORMS: dict[str, tuple[tuple[str, ...], object]] = {
    "processors": (("trace",), None),
    "nodes": (("gang",), 8),
    "gpus_per_node": (("gang",), 8),
    "policy": (("trace", "gang"), None),
    "runtimes": (("trace",), "requested"),
    "reserve": (("trace",), "slowdown"),
    "no_guarantee": (("trace",), False),
    "node_list": (("pods",), None),
    "demand": (("pods",), 1.3),
    "placement": (("pods",), "fgd"),
    "seed": (("trace", "pods"), 1),
    "bound": (("trace", "config"), 10.0),
    "by": (("trace", "config"), ()),
    "starts": (("trace", "gang", "config"), None),
    "plot": (("trace", "config"), None),
    "config": (("config",), None),
    "against": (("config",), None),
}


def run(arguments: Namespace, context: Context) -> int:
    """Exit status 0: simulated; 1: the trace cannot be replayed; 2: wrong command line."""
    forms = [form for form in ("trace", "gang", "pods") if getattr(arguments, form) is not None]
    if len(forms) != 1:
        return _wrong(
            context, "name one of TRACE, --gang CSV and --pods CSV" if not forms else f"{' and '.join(forms)}: only one"
        )
    form = "config" if forms[0] == "trace" and arguments.config is not None else forms[0]
    if arguments.against is not None and arguments.config is None:
        return _wrong(context, "--against goes with --config")
    if arguments.runtimes != "predicted" and (arguments.reserve or arguments.no_guarantee):
        return _wrong(context, "--reserve and --no-guarantee go with --runtimes predicted")
    for option, (allowed, default) in _FORMS.items():
        if getattr(arguments, option) is None:
            setattr(arguments, option, default)
        elif form not in allowed:
            return _wrong(context, f"--{option.replace('_', '-')} has no meaning for {_called(form)}")
    if form == "pods" and arguments.node_list is None:
        return _wrong(context, "--pods needs --node-list CSV")
    _check_files(arguments)
    if form == "config":
        require("spritz simulate --config", "controller")
        from spritz.sim.config_run import run_config

        reports = run_config(arguments, context)
    else:
        reports = [_study(form)(arguments, context)]
    show(reports, context, as_object=arguments.json)
    if arguments.plot:
        draw(arguments.plot, [(report.title, report.course) for report in reports if report.course is not None])
    return 0


def _study(form: str) -> Callable[[Namespace, Context], Report]:
    """Raises TraceError if the models of published studies are not installed."""
    module, function = _STUDIES[form]
    try:
        run: Callable[[Namespace, Context], Report] = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "spritz_testing":
            raise
        raise TraceError(
            f"the model of {_called(form)} is not part of Spritz",
            "pip install spritz-testing (in a checkout: ./testing), or replay TRACE on a cluster: --config slurm.conf",
        ) from error
    return run


def _check_files(arguments: Namespace) -> None:
    """Check that output files can be written."""
    if arguments.starts:
        check_writable(arguments.starts)
    if arguments.plot:
        check_drawable(arguments.plot)


def _called(form: str) -> str:
    return {"trace": "TRACE by itself", "config": "--config"}.get(form, f"--{form}")


def _wrong(context: Context, message: str) -> int:
    context.error(message)
    context.err("Try 'spritz simulate --help'.\n")
    return 2


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 40:
        raise ArgumentTypeError(f"a whole number above 0, not {text!r}")
    return int(text)


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ArgumentTypeError(f"a whole number, not {text!r}")
    return int(text)


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 < ratio <= 100:
        raise ArgumentTypeError(f"a number above 0 and up to 100, not {text!r}")
    return ratio


def _bound(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise ArgumentTypeError(f"seconds above 0, not {text!r}")
    return seconds


def _breakdowns(text: str) -> tuple[str, ...]:
    words = tuple(text.split(","))
    for word in words:
        if word not in BREAKDOWNS:
            raise ArgumentTypeError(f"{word!r} is not one of {', '.join(BREAKDOWNS)}")
    return words
