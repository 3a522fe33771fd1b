"""Kubernetes: the operator and what it stands on. Needs the extra `kubernetes` (lightkube).

`http`       connections, kept, to the API server and slurmrestd
`api`        requests: server-side apply as our field manager, typed reads, status, binding, eviction; bounded retries
`watching`   the reflector: a cache of one resource that equals the server's, and every change of it, deletions included
`workqueue`  keys that wait for a worker: no key with two workers at once, back-off per key
`election`   leader election by a Lease, with a fence that closes before another leader can open its own

`pods`           pods as far as scheduling goes: what they ask for, and which of them start together
`policy`         namespaces and priority classes -> accounts, users, QOS
`placing`        from pods to a job's description, and from a job's allocation to places for pods
`groups`         PodGroups: how many pods start together
`claims`         ResourceClaims: how many GPUs they ask for, and the devices that they get
`slurm`          slurmrestd: external jobs, nodes, events
`pod_scheduler`  pods wait, start and end as jobs; `reports` tells them why and when
`admission`      which pods are ours, and which can be no job; `webhooks` serves it, with `certificates` of its own
`node_sync`      nodes of both sides; cordons and drains
`operator`       the process

`cluster_objects`  a SpritzCluster -> configuration, keys, workloads and services of its daemons
`node_sets`        a NodeSet, its pods and nodes -> what to make, drain and delete
`health`           a machine's fault -> drain, reboot, recheck, burn-in; `machine_health` carries it out
`login_sets`       a LoginSet -> its pods and keys; a Token -> its Secret
`control`          slurmrestd, as the owner of a cluster uses it
`clusters`         carries them out

Imports no package of Spritz but `notation`: it uses what a site's own programs could use.
"""
