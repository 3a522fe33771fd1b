"""Events -> records of jobs, steps, nodes and reservations. Pure: the store reads and writes the records.

`ledger`    the records that recent events concern, and what each event changes; `changes`: those of a batch
`steps`, `nodes`, `reservations`   what events of these change
"""
