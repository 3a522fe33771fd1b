"""A Kubernetes for tests: an API server and nodes, in memory, in one asyncio program.

`server`       KubeServer: HTTP, authentication, routes, watches, faults; `bodies`: what requests carry;
               `discovery`: what the server says of itself
`store`        the objects, their history, lists and watches (`watching`)
`cluster`      the verbs on them; `strategies`: defaults and checks of built-in kinds; `initial`: what a new cluster has
`pods`         bindings and evictions
`kinds`        built-in resources (from lightkube's models) and custom ones (from their definitions)
`schema`       pruning, defaults, validation, CEL rules; how lists merge
`managed`      managed fields and server-side apply
`http`         HTTP/1.1, quick, and able to fail as real servers do
`patches`, `selectors`, `tables`, `conditions`, `errors`   the forms of the API: what is sent, chosen and shown
`admission`    built-in admission and webhooks; `access`: tokens and RBAC
`nodes`        a default scheduler, and kubelets that run pods as processes of this machine
`probes`       asks pods' processes whether they are ready; `rights`: who containers are, and whose their files are
`controllers/` owners' garbage collection, the workloads that make pods, claims, budgets and quotas

What a server must do is stated in tests/kubernetes/contract, which runs against this one and any real one.
By hand: `python -m spritz_testing.kubernetes --nodes 4`, then kubectl with the kubeconfig that it prints.
Needs the extras `kubernetes` and `rest`.
"""
