"""Settings of the whole cluster that decisions depend on.

`settings`     `ClusterSettings`, which has all of them; `Caller`, who asks
`power`        power saving
`preemption`   preemption and time slicing
`priority`     weights of priorities, and the factors that they multiply
`topology`     how the network connects nodes
"""
