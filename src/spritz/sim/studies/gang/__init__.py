"""Gang jobs on nodes with GPUs: all GPUs of a job at once, on as few nodes as it takes.

`nodes` places gangs, `preemptive` replays shortest-remaining policies with a restart cost, `queued` FIFO and backfill.
"""
