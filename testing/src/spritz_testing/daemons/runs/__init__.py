"""One run and its judgement, and many runs.

`run`          a world from a seed, a cluster in it, a plan carried out, and its history checked
`small_limits` limits of production code that some runs make small
`final`        what users are shown in the end; `judge`: the checks of a run
`story`        a run to be read
`campaign`     many runs in forked children
`shrink`       a failing plan made smaller
"""
