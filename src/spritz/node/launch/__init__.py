"""From a launch message to what a supervisor must know. Pure: paths, numbers and the machine's shape are arguments.

Map
---
`build`        the specification of a supervisor; `latest`: what the nodes of one order share, worked out once
`environment`  of scripts and tasks: every SLURM_ variable; `hooks`: of Prolog, Epilog and HealthCheckProgram
`affinity`     abstract CPUs as this machine's; `gpus`: which GPUs each task sees; `niceness` of tasks
`streams`      files of standard streams; `tree`: where supervisors connect; `mpi`: the step as MPI servers see it
"""
