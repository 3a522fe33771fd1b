"""Requests to `slurmctld`: authenticate, authorise, add the time, decide or read, answer.

Everything that depends on the outside world is resolved here, before the core sees a command: the caller and its
groups, the time, the key of a script. Policy is the core's, and is not decided here.

`table`      every accepted request and its handler
`commands`   requests that change state: handed to the single writer, answered once durable
`submit`     SubmitJob: stores script and environment; `owner` resolves the job's user
`plugin_requests`   submissions and updates on their way through JobSubmitPlugins
`queue/`     queries of jobs, steps and priorities: filters, rows, rows cached in encoded form
`nodes`, `partitions`, `reservations`, `cluster`, `events`   more of `model.queries`, one file per noun
`listings`, `children`   how many listings, and how many answers of forked children, a user may have in progress
`changes`    events as subscribers see them: public fields, and PrivateData
`shares`, `fairshare`   queries of shares; `explain`, `will_run` work on a forked copy
`private`    what PrivateData hides
`limit_usage`, `crontab`   limits and their use (scontrol show assoc_mgr); reading crontabs
`dynamic`    dynamic nodes, which slurm.conf does not have
`deferred`   requests that wait for an event: a start, an end, a free step
`reports`    reports of node daemons
"""
