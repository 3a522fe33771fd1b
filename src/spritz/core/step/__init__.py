"""Where a step's tasks go in its job's allocation.

`layout`       lays the step out: nodes, tasks, CPUs, memory, GRES
`job_nodes`    the part of the job's allocation that is free, node by node
`gpu_shares`   shares of GPUs that each task gets
`ports`        ports that the step reserves on all of its nodes
`binding`      CPU masks and GPU masks of each task
"""
