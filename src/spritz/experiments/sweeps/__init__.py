"""Sweeps: a job array whose tasks are trials of a command with different parameters.

No process stays alive, and each file has a single writer (docs/decisions/0171): a trial draws its parameters when it
starts, from the other trials' results so far, and writes only into its own run's directory.

`space`      parameters, the points of a grid, and random draws
`plan`       sweep.yaml, checked
`stopping`   early stopping of trials: ASHA and the median rule
`trials`     files of a sweep's trials: parameters, metrics, events
`sampler`    TPE by Optuna, from those files
`sweep`      a sweep on disk
`queue`      submit, resume and stop a sweep; `foreground` shows its trials until they have ended
`trial`      a program in the job, in parallel to a trial: draws its parameters, stops it early
`report`     table, best trial, plots
`multirun`   `spritz run -m`, and the `-m` of a Hydra program
"""
