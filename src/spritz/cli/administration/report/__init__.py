"""The parts of `sreport`.

`session`   options, the state of an interactive session, and its keywords
`conditions`  `user top start=… users=…` -> conditions, with Slurm's names and abbreviations
`usage`     reports of rolled-up usage: clusters, accounts, users, wckeys
`sizes`     reports of jobs by size; `span`: the period of a report
`reservations`  the report of reservations
"""
