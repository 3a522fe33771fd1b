"""What may be asked of `slurmctld`: authenticate, authorise, stamp, decide or read, answer.

All that is not certain is settled here, before the core sees a command: who asks, which groups they are in, what time
it is, under which key a script is kept. Policy is not settled here: that is the core's.

`identity`   authenticates callers, and looks users and groups up before a handler runs
`table`      every request that is taken, and by which function
`commands`   requests that change state: handed to the single writer, answered when durable
`submit`     SubmitJob: stamped, script and environment stored beside it; `owner` whose it is
`with_plugins`   submissions and updates on their way through JobSubmitPlugins
`jobs`, `steps`, `nodes`, `partitions`, `cluster`, `events`   the reads of `model.queries`, one file per noun
`shares`, `fairshare`, `priorities`, `reservations`   more reads; `explain`, `will_run` from a forked copy of the state
`rows`, `kept_rows`   rows of listings, kept as the bytes that were sent; `private` what callers are not shown
`dynamic`    nodes that slurm.conf does not have
`filters`    which jobs a `JobFilter` means
`waiting`    requests that are answered when something happens
`reports`    what node daemons tell
"""
