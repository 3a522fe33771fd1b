"""Listings, after a command's options are read: options → the question → rows in columns.

`queue/`     squeue: jobs and steps, sorting; what the other listings of jobs share
`info/`      sinfo: partitions and nodes
`priority/`  sprio: the parts of jobs' priorities
`stat/`      sstat: running steps and what they use
`acct/`      sacct: the database's records, with the controller's; the connection to slurmdbd
"""
