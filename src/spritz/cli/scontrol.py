"""scontrol: look at and change jobs, nodes, partitions and daemons.

Source: scontrol(1).
"""

from __future__ import annotations

from spritz.cli.administration.control import verbs
from spritz.cli.administration.control.session import Session
from spritz.cli.administration.control.verbs import VERBS
from spritz.cli.call import clusters
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import AUTOCOMPLETE, Row, help_text, run_parse, version_text

OPTIONS: tuple[Row, ...] = (
    AUTOCOMPLETE,
    Row("all", "a", "", "include hidden partitions"),
    Row("clusters", "M", "NAMES", "name of another cluster", env="SLURM_CLUSTERS"),
    Row("cluster", "", "NAMES", alias="clusters"),
    Row("details", "d", "", "show more details"),
    Row("federation", "", "", "find jobs on other clusters of the federation (default)"),
    Row("future", "F", "", "include nodes in state FUTURE"),
    Row("help", "h", "", "print this help"),
    Row("hide", "", "", "exclude hidden partitions (default)"),
    Row(
        "json",
        "",
        "[=list|VERSION]",
        "print JSON: records of show, listjobs, liststeps, listpids, ping and explain",
    ),
    Row("local", "", "", "only this cluster (default)"),
    Row("oneliner", "o", "", "print each record on one line"),
    Row("quiet", "Q", "", "print only errors"),
    Row("sibling", "", "", refused="use --clusters, or --local on the sibling's cluster"),
    Row("uid", "u", "USER", refused="scontrol acts as the caller; become that user first"),
    Row("usage", "", "", "print a short usage"),
    Row("verbose", "v", "", "print more"),
    Row("version", "V", "", "print the version"),
    Row("yaml", "", "[=list|VERSION]", "print the same as YAML"),
)

_SYNOPSIS = "[<OPTION>] [<COMMAND>]"

USAGE = "Usage: scontrol [-adFhoQvV] [--json] [<COMMAND>]\n"


def main(argv: list[str], context: Context) -> int:
    """0, or 1 for anything that was not understood or not possible."""
    parsed = run_parse(OPTIONS, _with_flags_apart(argv), context)
    if isinstance(parsed, int):
        return parsed
    options_given, operands = parsed
    option_keys = {key for key, _ in options_given}
    if "version" in option_keys:
        context.out(version_text())
        return 0
    if option_keys & {"help", "usage"}:
        context.out(full_help() if "help" in option_keys else USAGE)
        return 0
    if "clusters" in option_keys or "SLURM_CLUSTERS" in context.environ:
        names = next((value for key, value in reversed(options_given) if key == "clusters"), None)
        clusters.only(
            names or context.environ.get("SLURM_CLUSTERS", ""), context, names_source=clusters.source(options_given)
        )

    session = Session(context, full_help)
    session.local = "clusters" in option_keys or "SLURM_CLUSTERS" in context.environ
    _set_modes(session, options_given)
    try:
        if not operands:
            from spritz.cli.administration.control import interactive

            return interactive.run(session)

        return verbs.call(session, operands)
    finally:
        session.close()


def _with_flags_apart(argv: list[str]) -> list[str]:
    """`setdebugflags -Steps`: that is no option."""
    for place, word in enumerate(argv):
        if len(word) >= 9 and "setdebugflags".startswith(word.lower()):
            return [*argv[: place + 1], "--", *argv[place + 1 :]]
    return argv


def _set_modes(session: Session, options_given: list[tuple[str, str | None]]) -> None:
    environ = session.context.environ
    session.all = "SCONTROL_ALL" in environ
    session.future = "SCONTROL_FUTURE" in environ
    for key, value in options_given:
        if key == "all":
            session.all = True
        elif key == "hide":
            session.all = False
        elif key == "local":
            session.local = True
        elif key == "details":
            session.details += 1
        elif key == "future":
            session.future = True
        elif key == "oneliner":
            session.oneliner = True
        elif key == "quiet":
            session.quiet = True
        elif key == "verbose":
            session.verbose = True
        elif key in ("json", "yaml"):
            session.json = ("yaml=" if key == "yaml" else "") + (value or "")


def full_help() -> str:
    """Options, and every keyword and entity that works."""
    from spritz.cli.administration.control.show.entities import ENTITIES

    lines = ["    Valid <COMMAND> values are:"]
    for verb in VERBS:
        if not verb.refused:
            usage = f"     {verb.name} {verb.words}".rstrip()
            lines += [f"{usage:<35} {verb.help}"] if len(usage) < 35 else [usage, f"{'':<35} {verb.help}"]
    lines += ["", "Entities of show: " + ", ".join(name for name, entity in ENTITIES.items() if not entity.refused)]
    return help_text("scontrol", _SYNOPSIS, OPTIONS, "\n".join(lines))


def entry() -> None:
    run("scontrol", main)
