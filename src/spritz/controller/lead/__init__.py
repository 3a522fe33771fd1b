"""Several controllers for one cluster: who leads, and what the others do meanwhile.

`standby`     a controller that waits, with a copy of the state, until it may lead
`lease`       what a leader keeps in the database, and loses when it cannot
`agreement`   what the controllers of a cluster must have in common
`peers`       requests to and through other controllers
`probes`      health checks of a controller that stands by
`users`       users on a standby's machine, relayed to the leader
"""
