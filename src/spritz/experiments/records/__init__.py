"""What is kept about runs.

`record`     a run's record, and the events that its job writes
`store`      the index of all runs
`database`   where the index is: SQLite, or a shared database
`unused`     removes what no run refers to
"""
