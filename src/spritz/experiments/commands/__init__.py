"""Subcommands of `spritz` that deal with runs; each has `add_arguments` and `run`."""
