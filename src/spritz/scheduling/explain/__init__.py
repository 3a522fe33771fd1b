"""Why a job waits: reads a snapshot and the plan of a full cycle over it, and says what they mean.

Judges nothing by itself. Whether a job starts or waits, and when it is expected to start, is what the plan says; the
other statements are facts about the same snapshot, found with the planner's own tests (`capacity`, `place`,
`earliest`).

    view = PlanView(snapshot, full_cycle.run(snapshot, held=True), jobs, nodes)
    explanation = explain(view, job)                # -> model.explain.Explanation
    alternatives = try_others(projection, job, …)   # runs more cycles; use a fork of the projection

Map: `context` (the snapshot once the plan's starts are taken) · `explanation` (the whole answer, in order) · `nodes`
(which test each node fails) · `limits`, `account_limits`, `limit_minutes` (limits and their figures) · `blockers`
(running jobs that must end) · `jobs_ahead` (waiting jobs that go first, and why) · `expected_start` (start, and how
sure) · `alternatives` (requests that would start sooner) · `wording` (plain English).

Invariants: counts of node tests add up to the nodes of the cluster; jobs named as blockers suffice. Tests:
tests/unit/scheduling/test_explain*.py, tests/property/test_explain.py.
"""
