"""What this machine is and offers to jobs: hardware, GPUs, cores, features.

`detection`        CPUs and their topology, memory, disk, GPUs (`slurmd -C`)
`gpu_detection`    GPUs and MIG slices, matched with configured devices
`daemon_cores`     restricts the daemon and its supervisors to the system's own cores
`feature_helpers`  programs that print and set features
"""
