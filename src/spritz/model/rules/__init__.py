"""Rules that the core and the scheduler must agree on: one file per rule, pure functions of records.

The scheduler plans by these rules and the core checks each start by them, so a plan that is not stale is never
refused. Where the scheduler needs the same answer for many nodes at once it has an array form of its own; the function
here is its oracle, and `tests/property/test_core_and_scheduler.py` holds the two equal.

Map
---
`time_limit`         how long a job may run, and how long it holds what it was given
`job_size`           how many nodes and tasks it asks for
`sharing`            who may use a CPU together, and in which pieces nodes are given out
`reservation_use`    which reservations a job may run in, and which keep it off
`licenses`           which licenses a job gets
`default_memory`     what memory a job gets that asks for none
`whole_nodes`        what it holds at least if it gets whole nodes
`components`         whether components of a heterogeneous job may share a node
`node_shape`         what a node could give if it were empty
`node_use`           what its jobs hold of it, and whether one more share fits
`access`             whether accounting and the lists of a partition let it in
`availability`       which nodes and partitions take jobs, by their states
`partition_limits`   which limit of a partition keeps it out
`preemption`         which jobs may preempt which, and how
`predict`            run times predicted from what the user has run before
`mcs`                labels: which jobs may share nodes, and who sees them
`job_tres`, `gpu_cores`   what a job counts as trackable resources; the cores near a GPU

Rules of accounting are in `model.limits`, features that nodes can change in `model.node.node_features`.
"""
