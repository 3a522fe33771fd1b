"""What GPUs and jobs of this machine use at present, for metrics.

`gpu_use`      utilisation of the GPUs, by NVML or amdsmi
`job_use`      CPUs, memory and I/O of jobs, as the supervisors of their steps measure them
`job_mapping`  files that map GPUs to jobs, for dcgm-exporter
"""
