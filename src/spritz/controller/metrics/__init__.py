"""Metrics of the cluster for Prometheus, and what load balancers ask, over HTTP on slurmctld's own port.

`jobs`      jobs by state and what they hold: of all, and of each partition, user and account
`nodes`     nodes by state, and what they have, of all and of each partition
`families`  all of it as families of samples with Slurm 25.11's names, and ours
`pages`     text of a page, made in a forked child, and kept for a moment
`paths`     which there are, and how HTTP is told from our messages
`http`      HTTP on a connection that begins with a request of it
`begin`     what the daemon starts

Needs the extra `metrics` (prometheus-client, h11). Source: Slurm's metrics guide; slurm.conf(5) MetricsType,
MetricsParameters.
"""
