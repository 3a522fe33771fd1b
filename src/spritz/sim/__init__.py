"""`spritz simulate`: what a policy would have done with a trace, on virtual time.

`trace`    reading traces: Standard Workload Format, gang and pod lists, sacct output, our own journal
`cluster`  the production core and cycle on virtual time, as a slurm.conf configures them
`studies`  models of published studies, which do not use the core
`command`  the command line; `swf_run`, `gang_run`, `pods_run` and `config_run` are its four forms
`measures` waits, slowdown, utilisation; `course` use and queue over time; `report` tables, breakdowns and JSON
"""
