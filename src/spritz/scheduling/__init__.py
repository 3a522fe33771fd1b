"""Which jobs start where, and why the others wait: pure functions over a snapshot.

Six packages; each imports only those to its right (`.importlinter`):

    explain > forecast > plan > placement > view > kernels

- `view`: what a cycle reads. `projection` follows changed records (`view.changes`: what each changes), `snapshot` is
  the state at one moment, `profile` the free resources of every node over time.
- `placement`: where one request fits on a table of nodes (`place`), and when it will (`earliest`).
- `plan`: one cycle. `cycle` takes jobs in order of priority: limits, place, backfill, preempt.
- `forecast`: when jobs without a planned start are expected to start. `full_cycle` is a cycle with its forecast.
- `explain`: what a plan means for one job, in English.
- `kernels`: inner loops over arrays, compiled where there is a C compiler.

A **request** is what a job asks of one partition, resolved. A **shape** is all waiting jobs with equal requests. A
**planned start** (`FutureStart`) is the latest time at which a waiting job will start, and its nodes. A **full** cycle
renews the planned starts; a **quick** one keeps them and has a budget.

    projection = Projection()
    projection.reset(jobs, nodes, partitions, settings)   # from the records; then
    projection.follow(outcome.changes)           # what every command has changed
    snapshot = projection.snapshot(now, history) # a view: use it before the next `follow`, or pickle it
    plan, findings = cycle.run(snapshot, budget) # -> model.plan.Plan, for ApplyPlan; budget: placements to try
    plan, findings = full_cycle.run(snapshot)    # a full cycle, with expected starts
    projection.remember(findings)                # before the next `follow`: later cycles skip what cannot have changed
    projection.adopt(plan)                       # once its starts are applied: takes over the planned starts
    projection.set_priority_inputs(inputs)       # what accounting knows: fair share, associations, QOS
    refusal = feasible.check_request(spec, snapshot)      # (ESLURM name, words) if it could never run, else None

Invariants: a plan never gives a CPU, device, MiB or license twice; every job gets all it asked for or nothing; a later
job never delays a planned start; equal snapshots (planned starts included) give equal plans. Tests:
tests/unit/scheduling, tests/property/test_scheduling*.py.
"""
