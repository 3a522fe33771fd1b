"""The one client of HTTP, the one client of slurmrestd, and the one way to serve with uvicorn.

`transport`  requests to one server over kept connections, by aiohttp
`rest`       slurmrestd: who asks, the errors in its words, rows as typed records, the event stream
`stream`     server-sent events: frames, and a bookmark from which a broken stream goes on
`records`    what several clients read of a job: its devices and CPUs on each node
`serving`    uvicorn: sockets of two kinds, and an end that the caller decides

The dashboard (`web`) and the operator (`k8s`) use it. `live` does not: it follows slurmctld itself, by slurmctld's own
protocol.

Imports no other package of Spritz, as its users may not. Which package may use which stack of HTTP:
tests/unit/house/test_http_stacks.py. Source: docs/decisions/0227.
"""
