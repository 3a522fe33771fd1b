"""Runs in front of any Slurm: a record of the code, environment, options and results of each run.

It speaks only Slurm's public commands (22.05 and newer), so it works on a Spritz cluster and on any other Slurm, and
imports no other package than `notation`.

`slurm`      sbatch, squeue, sacct and scancel as functions; `refusals` what helps where sbatch refuses
`home`       where runs and snapshots are kept
`snapshot`   the working tree as a content-addressed tree in a git repository of our own
`secrets`    what must not be written down, in variables, arguments and addresses
`settings`   options of `spritz run`: command line, then spritz.yaml, then defaults
`run_environment` the environment of a run: variables, packages, driver
`record`     a run's record, and the events that its job writes
`store`      the index of all runs
`script`     the batch script of a run, by template
`states`     what became of a run, from its events and from Slurm
`sweeps`     many runs of one command as a job array
`metrics`    last values and histories of a run's metrics
`tracking`   the user's MLflow server; `tracking_server` is its processes
`inside`     what runs in the job beside the command: opens the MLflow run, samples use
`usage`      samples, metrics and log on one time axis
`checkpoints` a run's checkpoints, and which a policy removes
`attach`     commands beside a running run, as steps of its job
`sessions`   dev sessions: how they are reached, entries for ssh; `channel` carries ports through a step
`watch`      a program that runs inside a job: holds a session, or guards a run
`notify`     tells somebody of a run, through Apprise
`advice`     what a run used of what it asked for, and options for the next; `quotas` limits in words
`resuming`   what makes a run stop and start again from its checkpoint: the contract's options, and the job's side
`checkpointing` the program's side: one file, for training code, without spritz
`api`        Python functions as runs: submit, map, futures (public); `executors`: submitit's interface
`calling`    what such a run's job runs, and how its result comes back
`arrays`     several runs as one job array
`pipelines`  steps that use one another's results, compiled to dependencies
`commands`   one module each: run, runs, show, diff, rerun, logs, cancel, remove, sweep, sweeps, track, checkpoints,
             pause, resume, pipeline, exec, ssh, dev, quota
"""
