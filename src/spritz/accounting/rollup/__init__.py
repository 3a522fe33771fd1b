"""Usage by hour, day and month, made from what is stored, and reports of it.

Map
---
`spans`    hours, days and months of local time
`hours`    pure: records of a window -> what the cluster did in each hour, and who used what
`roll`     the database: one piece after the other, repeatable, set back by news of the past
"""
