"""What is kept about runs.

`record`     a run's record
`events`     the events that its job and commands write
`lives`      the order of a run's starts where two overlap: the job's side, and whose events count
`store`      the index of all runs
`database`   where the index is: SQLite, or a shared database
`space`      disk space and files of runs
`unused`     removes what no run refers to
"""
