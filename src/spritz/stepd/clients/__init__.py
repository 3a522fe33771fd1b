"""Connections of a supervisor to the step's clients (srun, salloc, sattach), directly or through a tree of supervisors.

`connections`  `connect(address, …)`, and `ClientLink`: frames out with a bounded queue, frames in
`group`        `ClientGroup`: the clients of one step, the first and those attached later
`uplink`       to the supervisor of the node above in a wide step's tree, or to the client; repeats what was lost
`below`        from the supervisors of the nodes below: their frames are passed on
`numbered`     the frames that the other end has not acknowledged
"""
