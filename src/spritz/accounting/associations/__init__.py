"""Associations: accounts, users, coordinators, associations and QOS, as `sacctmgr` edits them.

`tables` defines the tables. `store` reads them and applies an edit in one transaction. `rules` says what must hold,
`deleted` what may be deleted and what is only marked so, `permissions` who may change what, `rights` who may see what,
`callers` who asks.
`requests` answers sacctmgr and sends policies to controllers. `recompute_usage` adds up usage from the records of jobs.
"""
