"""A picture of the cluster that is kept current, for people at a terminal and for agents.

    jobs        rows of jobs, and what is shown of them
    nodes       nodes, their CPUs, memory and GPUs
    picture     all of it: which job holds which GPU, sums, what an update changes
    feed        follows slurmctld's changes in a thread, and asks for what they touched
    choice      filters and orders of jobs
    logs        the end of a file, made safe for a terminal
    commands    Slurm's and our own commands, run as the user
    snapshot    the picture as text and as JSON, once

What is read comes from slurmctld by the same requests as squeue's and sinfo's, and what is changed is changed by
Slurm's own commands: so the caller has the rights, and reads the words, of the commands.
"""
