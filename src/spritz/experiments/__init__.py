"""Runs in front of any Slurm: a record of the code, environment, options and results of each run.

It speaks only Slurm's public commands (22.05 and newer), so it works on a Spritz cluster and on any other Slurm, and
imports no other package than `notation`.

`slurm`      sbatch, squeue, sacct and scancel as functions; `refusals` hints for refusals of sbatch
`home`       the directory of runs and snapshots
`snapshot`   the working tree as a content-addressed tree in a git repository of our own
`sources`    snapshots of other working trees that the run imports from; `interpreters`: which Python, what it imports
`imports`    the program's side: imports come from the snapshots
`linked`     paths that git ignores and that a run sees; `written`: the files that it wrote
`secrets`    secrets in variables, arguments and addresses, which must not be stored
`settings`   options of `spritz run`: command line, then spritz.yaml, then defaults
`run_environment` the environment of a run: variables, packages, driver
`record`     a run's record, and the events that its job writes
`submission` a command becomes a run: snapshot, record, script, and queue; `containers`: runs in one
`store`      the index of all runs; `database`: where it is; `rebuilding`: makes it again from the records; `unused`:
             removes what no run refers to
`script`     the batch script of a run, by template
`states`     the state of a run, from its events and from Slurm; `failures`: why it failed; `errors`: messages and hints
`sweeps`     many runs of a command as a job array
`metrics`    last values and histories of a run's metrics
`tracking`   the user's MLflow server; `tracking_server` is its processes
`inside`     a program in the job, in parallel to the command: opens the MLflow run, samples usage
`usage`      samples, metrics and log on a common time axis
`checkpoints` a run's checkpoints, and their removal by policy
`attach`     commands inside a running run, as steps of its job
`sessions`   dev sessions: their addresses, and entries for ssh; `channel` carries ports through a step
`watch`      a program that runs inside a job: holds a session, or guards a run
`notify`     notifications about runs, through Apprise
`advice`     a run's usage of requested resources, and options for the next run; `quotas` limits as text
`resuming`   the contract with which a run stops and restarts from its checkpoint: its options, and the job's side
`checkpointing` the program's side: a single file for training code, without spritz
`api`        Python functions as runs: submit, map, futures (public); `executors`: submitit's interface
`calling`    the program of such a run's job, and its result
`arrays`     several runs as a job array
`pipelines`  steps that use the results of other steps, compiled to dependencies
`commands`   a module for each command: run, runs, show, diff, rerun, logs, files, cancel, remove, sweep, sweeps, track,
             checkpoints, pause, resume, pipeline, exec, ssh, dev, quota
"""
