"""SpritzClusters, NodeSets, LoginSets and Tokens: clusters whose daemons are pods.

`clusters`         watches these resources, and carries out SpritzClusters
`cluster_objects`  a SpritzCluster -> configuration, keys, workloads and services of its daemons
`rights`           who the pods' containers run as, with which capabilities
`fixed_fields`     fields of SpritzClusters and Tokens that keep their values
`configuration`    checks a slurm.conf before its daemons get it
`node_sets`        a NodeSet, its pods and nodes -> pods to create, nodes to drain, pods to delete
`per_machine`      the machines of a NodeSet that has a pod on each
`node_set_pods`    carries out NodeSets
`health`           a machine's fault -> drain, reboot, recheck, burn-in; `machine_health` carries it out
`login_sets`       a LoginSet -> its pods and keys; a Token -> its Secret; `logins` carries them out
`control`          slurmrestd, as the owner of a cluster uses it; `cluster_clients` has one for each cluster
`objects`          objects of the API server, written where they differ; conditions
"""
