"""`spritz`: a cluster of one's own with one command, and what Slurm has no command for.

Each subcommand lives in a module of its own with `add_arguments(parser)` and `run(arguments, context) -> int`; only
the one that is called is imported.
"""

from __future__ import annotations

from importlib import import_module

from spritz.cli.context import Context

#: name -> (module, one line of help)
SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "up": ("spritz.cli.local.up", "start a cluster on this machine (or the one in --dir)"),
    "join": ("spritz.cli.local.join", "make this machine a node or a login host of a cluster on another machine"),
    "token": ("spritz.cli.local.token", "create, list and revoke the tokens by which machines join"),
    "down": ("spritz.cli.local.down", "stop it; running jobs end, queued ones stay for the next `spritz up`"),
    "status": ("spritz.cli.local.status", "daemons, nodes, CPUs, GPUs and jobs at a glance"),
    "dashboard": (
        "spritz.cli.local.dashboard",
        "the cluster in a browser: start the dashboard, and print a link to it",
    ),
    # By name alone: these have packages of their own (docs/decisions/0191).
    "top": ("spritz.tui.command", "the cluster in a terminal, live: queue, output, nodes, GPUs, history, actions"),
    "doctor": ("spritz.cli.local.doctor", "say what is wrong and what to do"),
    "why": ("spritz.cli.local.why", "say why a job waits, and when it starts (scontrol explain)"),
    "eff": ("spritz.cli.local.eff", "what jobs used of what they asked for, and what to ask for next time"),
    "history": ("spritz.cli.local.history", "what happened to a job, from its submission on, and when"),
    "config": ("spritz.cli.local.config", "check FILE: every mistake in a slurm.conf, with file, line and hint"),
    # By name alone: the simulator stands above the commands (docs/decisions/0020).
    "simulate": ("spritz.sim.command", "replay a trace of jobs under a policy or a slurm.conf, on virtual time"),
    "usage": ("spritz.cli.local.usage", "usage as the controller keeps it, and as accounting's records have it"),
    "shares": ("spritz.cli.local.shares", "what accounts are guaranteed, use, borrow and lend; who goes first"),
    "gpus": ("spritz.cli.local.gpus", "which GPUs are free, of which type, on which nodes; when the next come free"),
    # These speak only Slurm's public commands, and serve any cluster (docs/decisions/0170).
    "run": ("spritz.experiments.commands.run", "run a command as a job, from a snapshot of the code as it is now"),
    "runs": ("spritz.experiments.commands.runs", "list and search runs"),
    "show": ("spritz.experiments.commands.show", "what is known of a run: code, environment, state, result"),
    "diff": ("spritz.experiments.commands.diff", "how two runs differ: command, code, environment, result"),
    "rerun": ("spritz.experiments.commands.rerun", "run a run again, exactly or with changes"),
    "logs": ("spritz.experiments.commands.logs", "a run's output, of all ranks, live and after the end"),
    "exec": ("spritz.experiments.commands.exec", "run a command in a running run, with its environment and GPUs"),
    "ssh": ("spritz.experiments.commands.ssh", "open a shell on a run's node"),
    "dev": ("spritz.experiments.commands.dev", "work on a compute node: a shell, JupyterLab or VS Code over ssh"),
    "quota": ("spritz.experiments.commands.quota", "limits of your jobs in words, and what is used of them"),
    "track": ("spritz.experiments.commands.track", "the MLflow server that tracks runs: status, start, stop"),
    "checkpoints": ("spritz.experiments.commands.checkpoints", "list and prune a run's checkpoints"),
    "pause": ("spritz.experiments.commands.pause", "let a run save its state and give its nodes back"),
    "resume": ("spritz.experiments.commands.resume", "let a paused run go on from where it was"),
    "sweep": ("spritz.experiments.commands.sweep", "run a command with many parameters: grid, random, TPE"),
    "sweeps": ("spritz.experiments.commands.sweeps", "list sweeps and their best trials"),
    "pipeline": ("spritz.experiments.commands.pipeline", "steps that use one another's results, as jobs"),
    # By name alone: it stands above the commands, which it runs.
    "mcp": ("spritz.agents.command", "serve this cluster to an agent (Model Context Protocol)"),
    "adopt": ("spritz.cli.local.adopt", "for pam_exec: admit ssh users with a job on this node, and no others"),
    "env": ("spritz.cli.local.env", "print the lines that point a shell at the cluster in --dir"),
    "completion": ("spritz.cli.local.completion", "print tab completion for bash or zsh"),
}


def main(argv: list[str], context: Context) -> int:
    """Dispatch to a subcommand; 0, or 2 for a wrong command line."""
    if argv and argv[0] in ("--version", "-V"):
        from spritz import __version__

        context.out(f"spritz {__version__}\n")
        return 0
    if not argv or argv[0] in ("--help", "-h", "help"):
        context.out(_usage())
        return 0
    name = argv[0]
    if name not in SUBCOMMANDS:
        from spritz.notation.names import nearest

        near = nearest(name, SUBCOMMANDS)
        context.error(f"no such command: {name}" + (f" (did you mean {near}?)" if near else ""))
        context.err("Try 'spritz --help'.\n")
        return 2
    import argparse

    class Help(argparse.HelpFormatter):
        """The layout of Python 3.13 on all Pythons: `-n, --nodes N`, the value once."""

        def _format_action_invocation(self, action: argparse.Action) -> str:
            if not action.option_strings or action.nargs == 0:
                return super()._format_action_invocation(action)
            value = self._format_args(action, self._get_default_metavar_for_optional(action))
            return f"{', '.join(action.option_strings)} {value}"

    module = import_module(SUBCOMMANDS[name][0])
    description = (module.__doc__ or "").split("\n\n")[0]
    parser = argparse.ArgumentParser(prog=f"spritz {name}", description=description, formatter_class=Help)
    module.add_arguments(parser)
    try:
        arguments = parser.parse_args(argv[1:])
    except SystemExit as stop:  # argparse has printed help or the error
        return int(stop.code or 0)
    status: int = module.run(arguments, context)
    return status


def _usage() -> str:
    lines = [
        "usage: spritz COMMAND [options]",
        "",
        "A Slurm-compatible cluster that starts by itself.",
        "",
        "commands:",
    ]
    lines += [f"  {name:<12} {text}" for name, (_, text) in SUBCOMMANDS.items()]
    lines += [
        "",
        "Slurm's own commands (sbatch, srun, squeue, sinfo, scancel, scontrol …) work as they do on any cluster.",
        "`spritz COMMAND --help` tells more; `spritz --version` prints the version.",
    ]
    return "\n".join(lines) + "\n"


def entry() -> None:
    """Console script."""
    from spritz.cli.entry import run

    run("spritz", main)
