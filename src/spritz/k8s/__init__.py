"""Kubernetes: the operator and its parts. Needs the extra `kubernetes` (lightkube).

`credentials`  certificates and tokens of a kubeconfig
`api`        requests: server-side apply as our field manager, typed reads, status, binding, eviction; bounded retries
`watching`   the reflector: a cache of one resource that equals the server's, and every change of it, deletions included
`workqueue`  keys that wait for a worker: no key with two workers at once, back-off per key
`election`   leader election by a Lease, with a fence that closes before another leader can open its own

`pods`           pods for scheduling: their requests, and the gangs that start together
`policy`         namespaces and priority classes -> accounts, users, QOS
`placing`        from pods to a job's description, and from a job's allocation to places for pods
`groups`         PodGroups: how many pods start together
`devices`        ResourceSlices: devices as generic resources of nodes, and their numbers; `selectors`: CEL
`claims`         ResourceClaims: the resources that they request, and the devices that they get
`slurm`          slurmrestd: external jobs, nodes, events
`pod_claims`     follows claims and offered devices, and allocates them to pods
`pod_scheduler`  pods wait, start and end as jobs; `reports` tells them why and when
`events`         requests that make events
`admission`      assigns pods to this scheduler, and refuses those that cannot be jobs; `webhooks` serves it
`node_sync`      nodes of both sides; cordons and drains
`operator`       the process

`cluster_objects`  a SpritzCluster -> configuration, keys, workloads and services of its daemons
`configuration`    checks a slurm.conf before its daemons get it
`node_sets`        a NodeSet, its pods and nodes -> pods to create, nodes to drain, pods to delete
`per_machine`      the machines of a NodeSet that has a pod on each
`health`           a machine's fault -> drain, reboot, recheck, burn-in; `machine_health` carries it out
`login_sets`       a LoginSet -> its pods and keys; a Token -> its Secret
`control`          slurmrestd, as the owner of a cluster uses it; `cluster_clients` has one for each cluster
`pod_fields`       what the scheduler makes of each field of a PodSpec
`resource_admission`  what the definitions of the operator's own resources cannot say; `certificates`: of the webhooks
`objects`          objects of the API server, written where they differ; conditions
`clusters`         watches our resources, and carries out SpritzClusters
`node_set_pods`    carries out NodeSets; `logins` LoginSets and Tokens

Imports no package of Spritz but `notation` and `http`: it uses what a site's own programs could use.
"""
