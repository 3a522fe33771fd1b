"""A job and its steps.

`record`      `Job`, `JobRequest`, `JobSpec` and what they are made of; `step`: the same of a step
`duties`      what each field of a request declares: updates, placement, bounds, how it is shown
`het`, `cron`, `job_filter`   parts of one job; crontab entries; which jobs a command or query is about
`job_gpus`, `job_variables`, `layout`   pure functions that several packages share
"""
