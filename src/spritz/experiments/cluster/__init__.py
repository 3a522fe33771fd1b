"""Slurm as its users see it: public commands, and what they say about limits and used resources.

`slurm`      sbatch, squeue, sacct and scancel as functions
`refusals`   hints for refusals of sbatch
`quotas`     limits as text, with their usage
`advice`     a run's usage of requested resources, and options for the next run
"""
