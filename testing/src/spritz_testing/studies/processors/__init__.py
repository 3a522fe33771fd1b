"""Machines modelled as a number of processors, as in the published studies of batch scheduling.

`engine` replays a workload under a policy (`policies` names them); `waiting` is its queue. `conservative`, `predicted`
(with its queue, `shortest`) and `rlscheduler` are engines of their own. `command` is `spritz simulate TRACE`.
"""
