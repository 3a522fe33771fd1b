"""Questions to any cluster that Slurm has no command for, a module per command of `spritz`.

Map
---
`why`        why a job waits and when it starts
`eff`        what jobs used of what they requested; `efficiency/`: its parts
`history`    what happened to jobs since their submission
`gpus`       free GPUs by type and node, and when more become free
`shares`     guarantees of accounts, what they use, borrow and lend
`usage`      the controller's usage beside the accounting records
`runs`       names of runs where a command takes job numbers
"""
