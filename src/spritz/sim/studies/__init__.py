"""Models of published scheduling studies, without the core and the production cycle: they answer whether our figures
are the literature's, and what a policy gives that no cluster runs.

`processors`  jobs on a number of processors: orders, EASY and conservative backfill, predictions, RLScheduler's rules
`gang`        jobs on nodes with GPUs, all GPUs of a job at once (Muri)
`pods`        pods with shares of GPUs (FGD); its `production` alone runs the production cycle

The studies' figures depend on rules that the core does not have: no whole minutes in a limit, no partitions, preemption
that restarts every running job, one decision at a time. A year of jobs takes seconds here, and 1.5 ms a cycle in the
core. What a cluster with a given slurm.conf would do is `spritz.sim.cluster`.
"""
