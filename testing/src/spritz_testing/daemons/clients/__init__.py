"""Users, whose commands run production code over blocking sockets, and other programs of a site.

`users`        all users, and what they were told
`command`      a user's command, and what it enters into the history; `blocking`: its sockets
`requests`     sbatch, scancel, scontrol of jobs; `launches`: srun, salloc
`operators`    scontrol of administrators
`readings`     squeue, sinfo and what else users look at
`inquiries`    listings, reports, and settings of the log
`followers`    programs that follow the cluster over a connection that they keep
`triggers`     strigger, and which of their programs ran
"""
