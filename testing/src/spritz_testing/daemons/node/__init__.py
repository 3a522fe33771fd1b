"""slurmd as a simulated process, and its machine.

`nodes`        slurmd, with the faults of its machine
`files`        the machine's disks
`supervisors`  step supervisors, and the zygote that forks them; `work`: what the tasks of steps do
`local`        sockets of a host
`step_clients` what stands for srun
"""
