"""What a change of a record changes in the projection.

`jobs` (each job's record, and what the job holds), `waiting_jobs` (the queue), `planned_starts` and `limits_policy` own
the parts of the projection that `Projection.follow` changes.
"""
