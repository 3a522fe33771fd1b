"""Listings of the queue: jobs, steps and priorities (squeue, scontrol show, sprio).

`jobs`, `steps`, `priorities`   the queries, one module per noun
`filters`    which jobs a `JobFilter` means
`rows`       a record as a row of attribute values; `row_cache`: rows of jobs in encoded form
"""
