"""Answers of srun and salloc that need no controller: --help, --usage, --version, --mpi=list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.options import help_text, version_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.call.context import Context
    from spritz.cli.call.options import Row
    from spritz.cli.jobs.submit.values import Values


def answer(program: str, synopsis: str, rows: Sequence[Row], options: Values, context: Context) -> int:
    """Print the answer and return the exit status; None if the options ask for none of these."""
    if "version" in options:
        context.out(version_text())
    elif "usage" in options:
        context.out(usage_text(program, synopsis, rows))
    elif "help" in options:
        context.out(help_text(program, synopsis, rows))
    elif options.get("mpi") == "list":
        from spritz.cli.jobs.launch.programs import mpi_list

        context.out(mpi_list())
    else:
        for option in ("cpu-bind", "mem-bind", "hint"):
            if options.get(option) == "help":
                context.out(_VALUES[option])
    return 0


_VALUES = {
    "cpu-bind": """CPU bind options:
    --cpu-bind=         Bind tasks to CPUs
        q[uiet]         quietly bind before task runs (default)
        v[erbose]       verbosely report binding before task runs
        no[ne]          don't bind tasks to CPUs
        rank            bind by task rank
        map_cpu:<list>  specify a CPU ID binding for each task
        mask_cpu:<list> specify a CPU ID binding mask for each task
        sockets         auto-generated masks bind to sockets
        cores           auto-generated masks bind to cores
        threads         auto-generated masks bind to threads
        help            show this help message
""",
    "mem-bind": """Memory bind options:
    --mem-bind=         Bind memory to locality domains (ldom)
        q[uiet], v[erbose], no[ne], rank, local, sort, prefer
        map_mem:<list>  specify a memory binding for each task
        mask_mem:<list> specify a memory binding mask for each task
        help            show this help message
""",
    "hint": """Application hint options:
    --hint=             Bind tasks according to application hints
        compute_bound   use all cores in each socket
        memory_bound    use only one core in each socket
        [no]multithread [don't] use extra threads with in-core multi-threading
        help            show this help message
""",
}


def usage_text(program: str, synopsis: str, rows: Sequence[Row]) -> str:
    """The usage line: all supported options, wrapped to a terminal's width."""
    words = []
    for row in rows:
        if row.refused or row.alias or not row.name:
            continue
        value = row.metavar if row.metavar.startswith("[=") else f"={row.metavar}" if row.metavar else ""
        words.append(f"[--{row.name}{value}]")
    words.append("executable [args...]" if program == "srun" else synopsis.rpartition("] ")[2])
    lines = [f"Usage: {program}"]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > 80:
            lines.append(" " * len(f"Usage: {program}"))
        lines[-1] += f" {word}"
    return "\n".join(lines) + "\n"
