"""Who starts where, and why others wait: pure functions over a snapshot.

Vocabulary: a **request** is what a job asks of one partition, resolved; a **shape** is all waiting jobs of one request;
a **reservation** is when and where the first blocked job of a partition will start; a **cycle** is one pass.

    projection = Projection()
    projection.apply(event)                      # every event, live and on replay
    projection.reset(jobs, nodes, partitions, settings)   # instead, after an image was loaded
    snapshot = projection.snapshot(now)          # a view: use it before the next apply, or pickle it
    plan = cycle.run(snapshot, budget)           # -> model.plan.Plan, for ApplyPlan; budget: placements to try
    plan = cycle.run(snapshot, budget, expect=True)       # also expected starts of blocked jobs
    refusal = feasible.check_request(spec, snapshot)      # (ESLURM name, words) if it could never run, else None
    expected = feasible.will_run(spec, snapshot)          # start and allocation, were nobody waiting before it

Map: `request` (JobSpec -> Request) · `hardware`, `nodes` (what there is, what is free) · `records` (jobs and queue) ·
`projection`, `follow` (events) · `snapshot` · `placement/` (one request on a table) · `backfill` (reservations) ·
`cycle` · `preemption`, `victims` (who makes room) · `notes`, `verdicts` (reasons) · `priority` · `licenses` · `feasible` (before a job waits).

Invariants: a plan never gives a CPU, device, MiB or license twice; every job gets all it asked for or nothing; a later
job never delays a reservation; equal snapshots give equal plans. Tests: tests/unit/scheduling,
tests/property/test_scheduling*.py.
"""
