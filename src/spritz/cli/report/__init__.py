"""What `sreport` is made of.

`session`   options and what an interactive session remembers; the keywords
`conditions`  `user top start=… users=…` -> conditions, with Slurm's names and abbreviations
`usage`     reports of rolled-up usage: clusters, accounts, users, wckeys
`sizes`     reports of jobs by size
`reservations`  the report of reservations
"""
