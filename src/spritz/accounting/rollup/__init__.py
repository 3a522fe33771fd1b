"""Usage by hour, day and month, made from what is stored, and reports of it.

Map
---
`spans`    hours, days and months of local time
`hours`    pure: records of a window -> what the cluster did in each hour, and who used what
`sizes`    pure: jobs by what they were given, day by day
`amounts`  sums of several TRES as one text
`roll`     the database: one piece after the other, repeatable, set back by news of the past
`read`     the records of a window; `write`: a piece's hours, and the days and months that end in it
`stored`   jobs by size as days and months hold them
`report`, `ask_sizes`   what sreport asks: spans put together from months, days and hours; what is cut, from the jobs
`requests` the daemon's part: rolling up at every hour, and before an answer

Invariants: usage is a function of the tables, but for the time before `clusters.purged_until`, whose records are gone:
that stays as it is. Numbers of jobs do not add up over days; `sizes` says what is kept instead.
"""
