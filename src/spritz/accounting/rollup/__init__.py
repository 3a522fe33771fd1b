"""Usage by hour, day and month, computed from the stored records, and reports of it.

Map
---
`hours`    pure: records of a window -> use of the cluster in each hour, by holder
`sizes`    pure: jobs by allocated CPUs, day by day
`amounts`  sums of several TRES as one text
`roll`     the database: one piece at a time, repeatable; a late event rewinds it
`read`     the records of a window; `write`: a piece's hours, and the days and months that end in it
`stored`   jobs by size as days and months hold them
`report`, `size_queries`   sreport's queries: spans made of months, days and hours; cut spans from the jobs themselves
`requests` the daemon's part: roll-up at every hour and before an answer

Invariants: usage is a function of the other tables, except for the time before `clusters.purged_until`: its records are
gone, and its usage stays as it is. Numbers of jobs do not add up over days; `sizes` says what is kept instead.
"""
