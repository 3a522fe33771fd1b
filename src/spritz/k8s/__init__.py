"""Kubernetes: the operator and its parts. Needs the extra `kubernetes` (lightkube).

`credentials`  certificates and tokens of a kubeconfig
`api`        requests: server-side apply as our field manager, typed reads, status, binding, eviction; bounded retries
`watching`   the reflector: a cache of one resource that equals the server's, and every change of it, deletions included
`workqueue`  keys that wait for a worker: no key with two workers at once, back-off per key
`election`   leader election by a Lease, with a fence that closes before another leader can open its own
`events`     requests that make events
`living`     tasks that live as long as the operator; the bounded end of its process

`pods`       pods for scheduling: their requests, and the gangs that start together
`policy`     namespaces and priority classes -> accounts, users, QOS
`slurm`      slurmrestd: external jobs, nodes, events

`scheduling` pods as jobs of the cluster's queue, machines of Kubernetes as its nodes
`custom_resources`  clusters, node sets, login sets and tokens: the daemons' own pods
`admission`  what the API server asks before it accepts a pod or a resource of ours
`operator`   the process

Imports no package of Spritz but `notation` and `http`: it uses what a site's own programs could use.
"""
