"""Who asks `slurmctld`, and how often it may.

`identity`      authenticates callers, and looks users and groups up before a handler runs
`rate_limits`   limits on users' requests (rl_enable)
"""
