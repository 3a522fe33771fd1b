"""The shared vocabulary: frozen records, states, commands, queries and what daemons say to each other.

Owns names and shapes only. Nothing here computes policy, reads a clock or does I/O; every other package imports it.

Map
---
`ids`         job, step and user numbers and their special values
`states`      job and node states with their flags; the transition table
`reasons`     why a job waits or ended, in Slurm's words
`errors`      `SpritzError`, the ESLURM table
`rejection`   `Rejection`: a request that is not allowed, as a value
`resources`   the resource algebra: masks, node capacity, requests, allocations
`bounds`, `stored`, `upcast`   ranges permitted in requests; records as bytes that last; values of other formats
`job/`        a job, its steps, and pure functions about them
`node/`       nodes, partitions, reservations, networks
`cluster/`    settings of the whole cluster: power saving, preemption, priorities, topology
`accounting/` records of slurmdbd and queries of them, past usage, shares
`limits/`     associations, QOS and what is used of them: rules that core and cycle share
`rules/`      rules that core and scheduling must agree on, one file each
`commands/`   requests that change state (handled by `core.Machine.handle`), one file per noun
`events/`     journaled facts
`queries/`    requests that only read, and their replies; those that few commands need are apart
`plan`        what a scheduling cycle proposes
`node_daemon/`   what the controller and node daemons tell each other
`federation`, `triggers`, `tokens`   one subject each
`scarcity`    shortages of a machine, and when to try again

Units are in names: `_minutes`, `_seconds`, `_mib`; times are float seconds since the epoch (`*_at`), 0.0 meaning "not
yet".
Import the defining module, not this package: commands must start fast.
"""
