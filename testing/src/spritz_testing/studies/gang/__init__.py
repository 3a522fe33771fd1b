"""Gang jobs on nodes with GPUs: all GPUs of a job at the same time, on as few nodes as possible.

`nodes` places gangs, `preemptive` replays shortest-remaining policies with a restart cost, `queued` FIFO and
backfill. `trace` reads lists of gang jobs; `command` is `spritz simulate --gang`.
"""
