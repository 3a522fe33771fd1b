"""How the tasks of a step lie on nodes, sockets and CPUs.

`distribution`  `block:cyclic`
`taskcounts`    `2(x3),1`
`cpubind`       `--cpu-bind`, `--mem-bind`, `--gpu-bind`
"""
