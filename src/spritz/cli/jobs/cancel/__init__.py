"""`scancel` after its options are read: `conditions` (options → filter), `run` (ask, cancel, tell)."""
