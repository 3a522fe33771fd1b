"""Rule 2: requests and readings of each job are linearizable.

`linearizable` the rule
`job_model`    what a user can see of one job, as a small sequential model
`observed`     what a reading says about a job, in the terms of the model
`search`       is there an order of overlapping operations that a model permits?
"""
