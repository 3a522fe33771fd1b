"""`spritz simulate`: replay of a trace under a policy, on virtual time.

`trace`    readers of traces: Standard Workload Format, sacct output, Spritz's own journal
`cluster`  the production core and cycle on virtual time, configured by a slurm.conf
`command`  the command line; `config_run` replays on a cluster
`measures` waits, slowdown, utilisation; `course` use and queue over time; `report` tables, breakdowns and JSON
`files`    checks that output can be written before a run; `progress` a bar on a terminal

The forms without `--config` are models of published studies: `spritz_testing.studies`, of another distribution.
"""
