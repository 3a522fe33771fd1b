"""Where a request goes: a pure function of a table of nodes.

`eligible`   which nodes may serve at all (partition, features, named and excluded nodes)
`capacity`   how much one node can take, exactly; `columns` the same for many nodes at once
`select`     which of them are taken, and how much goes to each
`fabric`, `leaves`   the network: which leaf switches hold it, the fewest of them
`counts`, `runs`, `cover`, `mixed`   kinds of requests that `select` leaves to them
`fragment`   nodes ranked by how much GPU capacity a request would leave fragmented
`linked`     which devices of a node go together
`share`      the exact CPUs, memory and devices on each
`place`      all four in turn: the entry point
"""
