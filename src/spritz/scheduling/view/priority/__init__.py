"""The order of the queue.

`multifactor`   a job's priority and its factors
`fairshare`     fair-share factors from shares and usage
`inputs`        accounting's part of priorities
"""
