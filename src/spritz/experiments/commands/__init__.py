"""Subcommands of `spritz` for runs. Each module has `add_arguments` and `run`, which returns the exit code."""
