"""CPUs and GPUs that jobs share, as columns of a table of nodes.

`oversubscribed`   CPUs that jobs of partitions with OverSubscribe may use
`gpu_parts`        which parts of GPUs are free on each node
`fragmentation`    how much of a node's free GPUs the workload cannot use
"""
