"""Models of published scheduling studies, without the core and the production cycle. They check whether Spritz
reproduces the literature's figures, and show the effect of policies that no cluster runs.

`processors`  jobs on a number of processors: orders, EASY and conservative backfill, predictions, RLScheduler's rules
`gang`        jobs on nodes with GPUs, all GPUs of a job at the same time (Muri)
`pods`        pods with shares of GPUs (FGD); only its `production` runs the production cycle

The studies' figures depend on rules that the core does not have: limits that are not whole minutes, no partitions,
preemption that restarts every running job, one decision at a time. A year of jobs takes seconds here; the core needs
1.5 ms a cycle. `spritz.sim.cluster` replays a trace on a cluster with a given slurm.conf.
"""
