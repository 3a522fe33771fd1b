"""What a cycle reads: the cluster, its jobs and its queue, as arrays and records.

- Nodes: `hardware` and `nodes` (one node), `table` (all nodes, rows and columns), `capacity` (what one node can carry
  of a request), `node_timeline` and `profile` (the same over time), `fabric` (the network), `sharing` (columns for
  shared CPUs and GPUs), `powered_nodes`, `occupants` (what running jobs hold).
- Jobs: `records` (jobs and the queue), `request` and `resolve` (what a job asks of a partition), `eligibility` (which
  nodes may serve it), `priority` (with fair shares), `charges` (what it counts towards limits), `holders` (what it
  holds of each node), `planned_starts`, `reservations`.
- `parameters`: SchedulerParameters.
- `projection` and `changes` keep all of this up to date; `snapshot` is what cycles read; `findings` are what cycles
  return to save work in later ones.
"""
