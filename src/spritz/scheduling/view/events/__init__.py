"""What each event changes in the projection.

`handlers` has one function per kind of event. `job_records`, `waiting_jobs`, `running_jobs`, `planned_starts` and
`limits_policy` own the parts of the projection that those functions change.
"""
