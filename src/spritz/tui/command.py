"""Live view of the cluster in a terminal: queue and output, nodes, GPUs, history; filters, actions.

--once prints a snapshot as plain text, --json as a JSON object; neither needs Textual.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.client.locate import locate_controller
from spritz.extras import pip_install
from spritz.live import snapshot
from spritz.live.choice import ORDERS, Choice, chosen
from spritz.live.feed import Feed, cluster_name, whole
from spritz.live.picture import Picture
from spritz.tui.views import occupancy

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.cli.call.context import Context
    from spritz.live.choice import Choice
    from spritz.live.picture import Update
    from spritz.tui.app import Mail

_EXTRA = "spritz top needs Textual, which is not installed: {} (--once and --json do without)"
#: Most jobs in a snapshot as text, without --all.
_ROWS = 40
#: Seconds to wait for the first update before Textual is imported.
_FIRST_SECONDS = 0.5
_ALTERNATE_SCREEN, _MAIN_SCREEN = "\x1b[?1049h\x1b[H", "\x1b[?1049l"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "filter",
        nargs="*",
        metavar="WORD",
        help="filters: user:alice state:pd part:gpu name:train; a word must occur, a -word must not",
    )
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster (default: the one that commands find)")
    parser.add_argument("--once", action="store_true", help="a snapshot as plain text")
    parser.add_argument("--json", action="store_true", help="a snapshot as one JSON object")
    parser.add_argument("--sort", choices=list(ORDERS), default="queue", help="order of the jobs")
    parser.add_argument("--all", action="store_true", help="with --once and --json: all jobs, including ended ones")
    parser.add_argument("--width", type=int, default=0, metavar="N", help="columns of --once (default: the terminal's)")


def run(arguments: Namespace, context: Context) -> int:
    """0; 1 if slurmctld does not answer a snapshot, or without a terminal or Textual."""
    conf = _conf_of(arguments.dir, context)
    text = " ".join(arguments.filter)
    try:
        choice = Choice(text, ended=arguments.all)
    except ValueError as error:
        context.error(f"filter: {error}")
        return 2
    if arguments.once or arguments.json:
        return _snapshot(arguments, context, conf, choice)
    if not (context.stdout.isatty() and context.stdin.isatty()):
        context.error("spritz top needs a terminal; --once and --json do without")
        return 1
    if context.environ.get("TERM", "") in ("", "dumb", "unknown"):
        context.err("spritz top: this terminal (TERM=dumb) cannot be drawn on; a snapshot instead:\n")
        return _snapshot(arguments, context, conf, choice)
    return _live(context, conf, choice, arguments.sort)


def _conf_of(directory: str | None, context: Context) -> str | None:
    if not directory:
        return None

    return os.path.join(os.path.abspath(os.path.join(context.cwd, os.path.expanduser(directory))), "etc", "slurm.conf")


def _live(context: Context, conf: str | None, choice: Choice, order: str) -> int:
    try:
        locate_controller(conf)
    except ClientError as error:
        context.error(error.message + (f" ({error.hint})" if error.hint else ""))
        return 1

    # Updates that arrive before Textual is imported wait in the application's mail.
    waiting: list[Update] = []
    box: list[Mail] = []
    lock, first = threading.Lock(), threading.Event()

    def deliver(update: Update) -> None:
        with lock:
            if box:
                box[0].put(update)
            else:
                waiting.append(update)
                first.set()

    feed = Feed(conf, deliver)
    feed.start()
    modern = _colours(context.environ.get("TERM", ""))
    if not modern:
        os.environ["NO_COLOR"] = "1"
    painted = modern and first.wait(_FIRST_SECONDS) and paint_first_frame(context, waiting[0], choice, order)
    try:
        from spritz.tui.app import Mail, Top
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in ("textual", "rich"):
            if painted:
                context.stdout.write(_MAIN_SCREEN)
            context.error(_EXTRA.format(pip_install("top")))
            return 1
        raise
    mail = Mail()
    with lock:
        for update in waiting:
            mail.put(update)
        box.append(mail)
    top = Top(feed, mail, conf, filter_text=choice.text, order=order)
    status = top.run()
    feed.stop()
    sys.stdout.flush()
    return status or top.return_code or 0


def paint_first_frame(context: Context, update: Update, choice: Choice, order: str) -> bool:
    """Show the jobs as plain text until Textual, which takes a quarter of a second to import, draws over them.

    On a busy login host the import takes seconds. Returns whether anything was painted.
    """
    from shutil import get_terminal_size

    from spritz.live import snapshot
    from spritz.live.choice import chosen
    from spritz.live.picture import Picture

    if update.problem:
        return False
    picture = Picture()
    picture.apply(update)
    size = get_terminal_size((120, 40))
    jobs = chosen(picture.jobs.values(), choice, order, picture.now)
    shown = snapshot.lines(picture, jobs[: size.lines], (), max(40, size.columns))
    context.stdout.write(_ALTERNATE_SCREEN)
    context.out("\n".join(shown[: size.lines - 1]))
    context.stdout.flush()
    return True


def _colours(terminal: str) -> bool:
    """Whether the terminal supports colours."""
    return not terminal.startswith(("vt1", "vt2", "ansi-m", "xterm-mono", "sun", "wy"))


def _snapshot(arguments: Namespace, context: Context, conf: str | None, choice: Choice) -> int:
    try:
        with connect_controller(locate_controller(conf)) as controller:
            update = whole(controller, cluster=cluster_name(conf))
    except ClientError as error:
        context.error(error.message)
        return 1
    picture = Picture()
    picture.apply(update)
    jobs = chosen(picture.jobs.values(), choice, arguments.sort, picture.now)
    if arguments.json:
        context.out(json.dumps(snapshot.facts(picture, jobs), indent=2) + "\n")
        return 0
    width = arguments.width or get_terminal_size((120, 40)).columns
    if not arguments.width and not context.stdout.isatty():
        width = 200
    holders = picture.holders()
    strips = [(node.name, *occupancy(node, holders.get(node.name, {}))) for node in picture.nodes.values() if node.gpus]
    shown = jobs if arguments.all else jobs[:_ROWS]
    for line in snapshot.lines(picture, shown, strips, max(40, width)):
        context.out(line + "\n")
    if len(shown) < len(jobs):
        context.out(f"and {len(jobs) - len(shown)} more jobs (--all shows them)\n")
    return 0
