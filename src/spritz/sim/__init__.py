"""`spritz simulate`: what a policy would have done with a trace, on virtual time.

`trace`       reading traces: Standard Workload Format, gang and pod lists, sacct output, our own journal
`processors`  a machine that is a number of processors: policies, engines, figures of published studies
`command`     the command line; `report` tables, breakdowns and JSON
"""
