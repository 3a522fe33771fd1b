"""Machines that are a number of processors: what the published studies of batch scheduling replay.

`engine` replays a workload under a policy (`policies` names them); `waiting` is its queue. `conservative`, `predicted`
(with its queue, `shortest`) and `rlscheduler` are engines of their own.
"""
