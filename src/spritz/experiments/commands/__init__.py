"""Subcommands of `spritz` for runs, one module per command. Each has `add_arguments` and `run`."""
