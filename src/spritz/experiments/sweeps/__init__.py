"""Sweeps: one job array whose tasks are trials of one command with different parameters.

No process stays alive, and no file has two writers (docs/decisions/0171): a trial draws its parameters when it starts,
from the other trials' results so far, and writes only into its own run's directory.

`space`      parameters, the points of a grid, and random draws
`plan`       sweep.yaml, checked
`stopping`   whether a trial is worth going on: ASHA and the median rule
`trials`     what the trials of a sweep have written: parameters, metrics, how they ended
`sampler`    TPE by Optuna, from those files
`sweep`      a sweep on disk
`queue`      submit, resume and stop it
`trial`      what runs in the job beside a trial: draws its parameters, stops it early
`report`     table, best trial, plots
"""
