"""Who starts where, and why others wait: pure functions over a snapshot.

Vocabulary: a **request** is what a job asks of one partition, resolved; a **shape** is all waiting jobs of one request;
a **promise** is when and where a waiting job will start at the latest; the **profile** is what every node will have
free at any time; a **cycle** is one pass: full ones renew promises and expected starts, quick ones have a budget.

    projection = Projection()
    projection.apply(event)                      # every event, live and on replay
    projection.reset(jobs, nodes, partitions, settings)   # instead, after an image was loaded
    snapshot = projection.snapshot(now)          # a view: use it before the next apply, or pickle it
    plan = cycle.run(snapshot, budget)           # -> model.plan.Plan, for ApplyPlan; budget: placements to try
    plan = cycle.run(snapshot, budget, expect=True)       # a full cycle within a budget (without one it always is)
    projection.adopt(plan)                       # once its starts are applied: promises live on (else none are kept)
    projection.set_priority_inputs(inputs)       # what accounting knows: fair share, associations, QOS
    refusal = feasible.check_request(spec, snapshot)      # (ESLURM name, words) if it could never run, else None

Map: `request` (JobSpec -> Request) · `hardware`, `nodes`, `table`, `company` (what there is, what is free, what is
shared) · `records` (jobs, queue) · `projection`, `follow` (events), `known`, `waiting`, `running`, `upkeep`, `changes`
(what they change) · `snapshot` · `priority` (order), `fairshare` · `policy` (SchedulerParameters) · `placement/` (one
request on a table) · `profile` (tables to come: `hold` subtracts) · `backfill`, `openings` (earliest start) ·
`promises` (those of one cycle) · `forecast`, `lanes` (expected starts of all) · `cycle`, `search` (where a job may
start now) · `gangs`, `gang_turn` (heterogeneous jobs) · `shortest` (by predicted times) · `preemption`, `victims` (who
makes room) · `reservations` · `limits`, `licenses` · `notes`, `verdicts` (reasons) · `fragmentation` · `feasible`
(before a job waits) · `explain/` (what a plan means for one job).

Invariants: a plan never gives a CPU, device, MiB or license twice; every job gets all it asked for or nothing; a later
job never delays a promise; equal snapshots (promises included) give equal plans. Tests: tests/unit/scheduling,
tests/property/test_scheduling*.py.
"""
