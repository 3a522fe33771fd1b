"""The parts of `squeue` behind its option parser.

Map
---
`conditions`  options and variables → the query to the controller
`jobs`   the listing of jobs: rows, and rows for single array tasks and partitions
`sort`   `--sort`
`steps`  the listing of steps
`array_rows`  tasks with records of their own join the row of their array; `verbose`: the first lines of -v
"""
