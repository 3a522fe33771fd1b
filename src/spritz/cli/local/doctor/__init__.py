"""`spritz doctor`: problems of this machine and its cluster, with remedies.

`command`    the command: findings about this machine, and the report
`cluster`    findings about the cluster, as this machine's daemon and the controller know it
`engines`    findings about container programs
`finding`    a line of the report
`log_end`    the ends of daemons' logs
"""
