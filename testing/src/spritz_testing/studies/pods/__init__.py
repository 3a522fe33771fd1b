"""Pods with shares of GPUs, placed one after another on an empty cluster until a given demand has been asked for.

`demand` draws the sequence, `cluster` holds what is free, `placement` chooses a node and GPUs,
`production` by the production cycle. `trace` reads lists of pods; `command` is `spritz simulate --pods`.
"""
