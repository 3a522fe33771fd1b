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
`job`, `step`, `node`, `partition`, `cluster`   one record each
`job_filter`  which jobs a command or query is about
`plan`        what a scheduling cycle proposes
`commands/`   requests that change state (handled by `core.Machine.handle`), one file per noun
`queries`     requests that only read, and their replies
`launch`      what the controller tells a node daemon
`reports`     what a node daemon tells the controller
`events/`     journaled facts
`limits/`     associations, QOS and what is used of them: rules that core and cycle share
`reservation`, `topology`, `networks`, `power`, `preemption`, `het`, `federation`, `cron`, `triggers`, `mcs`,
              `node_features`, `gpu_cores`, `machines`, `tokens`   one subject each
`accounting`, `usage`, `shares`, `fairshare`, `priority`, `reservations`, `explain`, `diagnostics`, `accounting_admin`
              further queries of commands, apart because few commands need them
`rules/`      rules that core and scheduling must agree on, one file each
`membership`, `predict`, `step_usage`, `layout`, `job_gpus`, `job_tres`, `job_variables`, `accounting_of`, `branches`,
              `scarcity`   pure functions that several packages share

Units are in names: `_minutes`, `_seconds`, `_mib`; times are float seconds since the epoch (`*_at`), 0.0 meaning "not
yet".
Import the defining module, not this package: commands must start fast.
"""
