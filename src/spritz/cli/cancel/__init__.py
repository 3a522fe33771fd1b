"""What `scancel` does after its options are read: `ask` (options → filter), `run` (ask, cancel, tell)."""
