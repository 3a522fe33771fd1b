"""A live picture of the cluster, for users at a terminal and for agents.

    jobs        rows of jobs, and the values shown for each
    nodes       nodes, their CPUs, memory and GPUs
    picture     the whole cluster: which job holds which GPU, totals, and updates
    feed        follows slurmctld's changes in a thread, and queries the changed jobs and nodes
    choice      filters and orders of jobs
    logs        the end of a file, made safe for a terminal
    commands    Slurm's and our own commands, run as the user
    snapshot    the picture as text and as JSON

Reads by the same requests as squeue and sinfo, and makes changes by Slurm's own commands. So the caller has the same
privileges, and gets the same messages, as with the commands.
"""
