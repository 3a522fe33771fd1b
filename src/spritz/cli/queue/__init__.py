"""What `squeue` does after its options are read.

Map
---
`conditions`  options and variables → what to ask the controller for
`jobs`   the listing of jobs: rows, arrays in parts, partitions in parts
`sort`   `--sort`
`steps`  the listing of steps
"""
