"""Why a job waits: reads a snapshot and the plan of a full cycle over it, and says what they mean.

It never judges by itself: that a job starts or waits, and when it is expected, is what the plan says; the rest are
facts about the same snapshot, gathered with the planner's own tests (`capacity`, `place`, `earliest`).

    view = View(snapshot, full_cycle.run(snapshot, held=True), jobs, nodes)
    explanation = explain(view, job)                # -> model.explain.Explanation
    alternatives = try_others(projection, job, …)   # runs more cycles: on a projection that may be spoilt (a fork's)

Map: `view` (the snapshot once the plan's starts are taken) · `story` (all of it, in order) · `nodes` (which test each
node fails) · `limits` (rules and their figures) · `blockers` (who must end) · `ahead` (who is first, and why) ·
`expected` (start, and how sure) · `others` (requests that would start sooner) · `words` (plain English).

Invariants: counts of node tests add up to the nodes of the cluster; jobs named as blockers suffice. Tests:
tests/unit/scheduling/test_explain*.py, tests/property/test_explain.py.
"""
