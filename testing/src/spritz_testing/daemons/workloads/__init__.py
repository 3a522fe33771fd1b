"""What users ask for in a run, drawn from its seed.

`workload`     a day's requests
`habits`       several steps that belong together
`mishaps`      requests with faults that strike just then; `close_calls`: narrower ones
`after_hours`  an hour without faults
"""
