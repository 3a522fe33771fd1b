"""What a step uses and what it may use: measurements, memory limits, and the devices and cores it is restricted to.

`usage`         processor time and memory of the step's processes, and its memory limit
`energy`        energy used by the node's processors (RAPL) or the step's GPUs (NVML)
`gpu`           memory and utilisation of GPUs, from NVML
`siblings`      memory of the job's other steps here, where no cgroup holds the job's limit
`confine`       devices and cores of a step, restricted by cgroups
`devicefilter`  the eBPF program that denies devices in a version 2 cgroup
"""
