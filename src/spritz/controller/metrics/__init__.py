"""Metrics for Prometheus and health checks for load balancers, over HTTP on slurmctld's own port.

`jobs`      jobs by state and their resources: in total, and by partition, user and account
`nodes`     nodes by state and their resources, in total and by partition
`families`  families of samples, with Slurm 25.11's names and our own
`text`      the text of families
`pages`     a page, made in slices and kept for a second
`paths`     the paths of pages, and the detection of HTTP on a connection
`http`      HTTP on a connection that begins with an HTTP request
`begin`     entry point for the daemon

To add a metric: docs/checklists/metric.md.

Needs the extra `metrics` (prometheus-client, httptools). Source: Slurm's metrics guide; slurm.conf(5) MetricsType,
MetricsParameters.
"""
