"""slurmdbd's records of jobs, and its answers about them.

`records`, `accounting_admin`   its records and queries; those of `sacctmgr`
`accounting_of`, `step_usage`   what the controller reports of a job; usage of steps as text
`usage`, `shares`, `fairshare`   past usage and what priorities make of it
"""
