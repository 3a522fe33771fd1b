"""The choice of nodes for a request: a pure function of a table of nodes.

`place`      the entry point: eligible nodes -> capacity -> select -> share
`columns`    how much of the request each of many nodes can carry (`view.capacity` is the exact rule for one)
`select`     which of these nodes are taken, and how much goes to each; `runs` is its array form
`scheme`     the same request as plain numbers, for the compiled choice of nodes
`leaves`     the network: the fewest leaf switches that hold the job
`counts`, `counted`, `cover`, `mixed`   requests that need more than one plain selection
`search`     the second try: looks through all sets of nodes, as far as `effort` goes
`fragment`   ranks nodes by how much GPU capacity a request would leave fragmented
`share`      the exact CPUs, memory and devices on each node; `linked` groups linked devices
`earliest`, `openings`   the earliest time at which a request fits into a profile
`exact`      whether a given allocation is free
"""
