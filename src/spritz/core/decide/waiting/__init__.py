"""Waiting jobs, until they start: changed, held, moved ahead.

`update`   UpdateJob
`hold`     HoldJob and ReleaseJob
`top`      TopJob: jobs ahead of the user's others
`accrue`   which jobs accrue age priority, if limits say how many may
"""
