"""When waiting jobs are expected to start. Estimates for users; no decision depends on them.

`full_cycle` runs a cycle and adds the forecast. `starts` and `lanes` estimate the starts of jobs that wait for
resources; `held_jobs` those of jobs held back by limits, licenses, begin times and dependencies (`dependencies`,
`limit_minutes`, `held_groups`, `held_events`).
"""
