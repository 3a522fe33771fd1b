"""Public helpers for tests: builders with sensible defaults, transcripts, strategies, fakes.

`builders`    a small cluster around a `Machine`, driven by hand
`transcript`  conversations with the core as text files, with `--bless`; `rendering` writes what came
"""
