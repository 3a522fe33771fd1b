"""Runs in front of any Slurm: a record of the code, environment, options and results of each run.

It speaks only Slurm's public commands (22.05 and newer), so it works on a Spritz cluster and on any other Slurm, and
imports no other package than `notation`.

`code`       what a run's code is: snapshots of the working tree, other sources, interpreters
`cluster`    Slurm's commands as functions, hints for its refusals, limits, used resources
`records`    what is kept about runs: a record each, and the index of all
`job`        from a command to a job in the queue: options, environment, script, submission, state
`results`    what a run leaves: logs, metrics, usage, checkpoints, files, the reason of a failure
`access`     runs beyond the index: rebuilding it, runs of other users, and who may see a run
`interactive` users inside a running run: commands, dev sessions
`sweeps`     many runs of a command as a job array
`pipelines`  steps that use the results of other steps, compiled to dependencies
`commands`   a module for each command: run, runs, show, diff, compare, branch, export, importing, rerun, logs, files,
             cancel, remove, sweep, sweeps, track, checkpoints, pause, resume, pipeline, exec, ssh, dev, quota;
             `upkeep`: edit, share, space

`home`       the directory of runs and snapshots
`secrets`    secrets in variables, arguments and addresses, which must not be stored
`errors`     messages and hints; `interface`: the terminal, as commands see it
`bundles`    a run as one file, and the other way
`tracking`   the user's MLflow server; `tracking_server` is its processes
`notify`     notifications about runs, through Apprise
`api`        Python functions as runs: submit, map, futures (public); `executors`: submitit's interface

Programs that jobs start by name or as a copy:
`calling`    calls the function of such a run, and keeps its result
`imports`    the program's side: imports come from the snapshots
`inside`     in parallel to the command: opens the MLflow run, samples usage
`watch`      holds a session, or guards a run
`checkpointing` for training code: a single file without spritz
"""
