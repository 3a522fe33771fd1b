"""Pods as jobs of the cluster's queue, and machines of Kubernetes as its nodes.

`pod_scheduler`  pods wait, start and end as jobs; `reports` tells them why and when
`placing`        from pods to a job's description, and from a job's allocation to places for pods
`pod_fields`     what the scheduler makes of each field of a PodSpec
`groups`         PodGroups: how many pods start together
`devices`        ResourceSlices: devices as generic resources of nodes, and their numbers; `selectors`: CEL
`claims`         ResourceClaims: the resources that they request, and the devices that they get
`pod_claims`     follows claims and offered devices, and allocates them to pods
`node_sync`      nodes of both sides; cordons and drains
"""
