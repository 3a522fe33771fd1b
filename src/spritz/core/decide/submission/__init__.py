"""Requests become waiting jobs, or are refused.

`submit`    SubmitJob and SubmitHetJob
`crontab`   UpdateCrontab: one job for each entry
`spec`      whether a request is valid in itself and against the configuration; updates and steps are checked, too
`memory`    what DefMemPer* and MaxMemPerCPU make of a request
`fit`       whether any nodes could ever serve a request
"""
