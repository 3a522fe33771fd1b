"""Live view of the cluster in a terminal: queue and output, nodes, GPUs, history; filters, actions.

With --once a snapshot as plain text, with --json as one JSON object; neither needs Textual.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from spritz.cli.context import Context

_EXTRA = "spritz top needs Textual, which is not installed: pip install 'spritz[top]' (--once and --json do without)"
#: Jobs of a snapshot as text, unless told.
_ROWS = 40


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `spritz top`."""
    from spritz.live.choice import ORDERS

    parser.add_argument("filter", nargs="*", metavar="WORD", help="user:alice state:pd part:gpu name:train -word word")
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster (default: the one that commands find)")
    parser.add_argument("--once", action="store_true", help="a snapshot as plain text")
    parser.add_argument("--json", action="store_true", help="a snapshot as one JSON object")
    parser.add_argument("--sort", choices=list(ORDERS), default="queue", help="order of the jobs")
    parser.add_argument("--all", action="store_true", help="with --once and --json: all jobs, including ended ones")
    parser.add_argument("--width", type=int, default=0, metavar="N", help="columns of --once (default: the terminal's)")


def run(arguments: Namespace, context: Context) -> int:
    """0; 1 where slurmctld does not answer a snapshot, or there is no terminal or no Textual."""
    from spritz.live.choice import Choice

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
    return _live(context, conf, text, arguments.sort)


def _conf_of(directory: str | None, context: Context) -> str | None:
    if not directory:
        return None
    import os

    return os.path.join(os.path.abspath(os.path.join(context.cwd, os.path.expanduser(directory))), "etc", "slurm.conf")


def _live(context: Context, conf: str | None, text: str, order: str) -> int:
    import os

    from spritz.client.errors import ClientError
    from spritz.client.locate import locate_controller

    try:
        locate_controller(conf)
    except ClientError as error:
        context.error(error.message + (f" ({error.hint})" if error.hint else ""))
        return 1
    import threading

    from spritz.live.feed import Feed

    # What the cluster says is on its way while Textual is imported.
    waiting: list[object] = []
    box: list[object] = []
    lock = threading.Lock()

    def deliver(update: object) -> None:
        with lock:
            if box:
                box[0].put(update)  # type: ignore[attr-defined]  # the application's mail
            else:
                waiting.append(update)

    feed = Feed(conf, deliver)
    feed.start()
    if not _colours(context.environ.get("TERM", "")):
        os.environ["NO_COLOR"] = "1"
    try:
        from spritz.tui.app import Mail, Top
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in ("textual", "rich"):
            context.error(_EXTRA)
            return 1
        raise
    mail = Mail()
    with lock:
        for update in waiting:
            mail.put(update)  # type: ignore[arg-type]  # updates
        box.append(mail)
    status = Top(feed, mail, conf, filter_text=text, order=order).run()
    feed.stop()
    sys.stdout.flush()
    return status or 0


def _colours(terminal: str) -> bool:
    """Whether the terminal has colours; those of the seventies have not."""
    return not terminal.startswith(("vt1", "vt2", "ansi-m", "xterm-mono", "sun", "wy"))


def _snapshot(arguments: Namespace, context: Context, conf: str | None, choice: object) -> int:
    from shutil import get_terminal_size

    from spritz.client.errors import ClientError
    from spritz.client.locate import locate_controller
    from spritz.client.sync import connect_controller
    from spritz.live import snapshot
    from spritz.live.choice import chosen
    from spritz.live.feed import cluster_name, whole
    from spritz.live.picture import Picture
    from spritz.tui.views import occupancy

    try:
        with connect_controller(locate_controller(conf)) as controller:
            update = whole(controller, cluster=cluster_name(conf))
    except ClientError as error:
        context.error(error.message)
        return 1
    picture = Picture()
    picture.apply(update)
    jobs = chosen(picture.jobs.values(), choice, arguments.sort, picture.now)  # type: ignore[arg-type]  # a Choice
    if arguments.json:
        import json

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
