"""`spritz simulate`: replay of a trace under a policy, on virtual time.

`trace`    readers of traces: Standard Workload Format, gang and pod lists, sacct output, Spritz's own journal
`cluster`  the production core and cycle on virtual time, configured by a slurm.conf
`studies`  models of published studies, which do not use the core
`command`  the command line; `swf_run`, `gang_run`, `pods_run` and `config_run` are its four forms
`measures` waits, slowdown, utilisation; `course` use and queue over time; `report` tables, breakdowns and JSON
`files`    checks that output can be written before a run; `progress` a bar on a terminal
"""
