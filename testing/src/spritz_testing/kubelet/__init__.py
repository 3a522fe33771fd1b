"""A kubelet for tests on a real control plane: nodes that are not there, whose pods are processes of this machine.

Each container is started as its user and with its capabilities, in a mount, PID and host-name namespace of its own and
in its pod's network namespace, with the volumes that its manifest names, laid out as the kubelet lays them out. This
interpreter and this checkout stand in for the image. Needs root, and overlayfs.

`agent`       Kubelet: registers nodes, renews their leases, and follows the pods that are bound to them
`workload`    one pod: its containers, probes, restarts, status and end
`containers`  starts a container, and commands in it; `image`: what every container finds besides its volumes
`volumes`     fills the volumes of a pod
`network`     a bridge, and a network namespace with an address for each pod
`services`    the addresses of Services, which lead to their endpoints, and their names in each pod's /etc/hosts
`storage`     volumes for claims

By hand: `python -m spritz_testing.kubelet --kubeconfig admin.conf`. docs/how-to/kubernetes-clusters.md is tested with
it (tests/kubernetes/real).
"""
