"""What each event changes in the projection.

`handlers` has one function for each kind of event. `job_records`, `waiting_jobs`, `running_jobs`, `planned_starts` and
`limits_policy` are the parts of the projection that they change.
"""
