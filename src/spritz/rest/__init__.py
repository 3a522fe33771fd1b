"""`slurmrestd`: Slurm's REST interface, all published versions from one implementation.

`intake`      bodies and queries read by a version's schemas; answers are shaped by `presentation.json.shape`
`daemons`     connections to slurmctld and slurmdbd, one set for each caller: slurmrestd has no rights of its own
`callers`     the caller: the Unix socket's peer (rest_auth/local), or a token (rest_auth/jwt)
`operations`  each operation, a function under its key (`GET /slurm/jobs`) for all versions; one file a noun
`answers`     the envelope: meta, errors, warnings; Slurm's status codes; ETags
`events`      events of the cluster, as server-sent events (/spritz/v1/events)
`picture`     what pages and terminals show beside Slurm's documents (/spritz/v1/jobs, nodes, explain …)
`app`         Starlette: a route for each operation of each version, and what stands beside them (/openapi, /docs)
`protocol`    HTTP over uvicorn with limits on slow and greedy clients
`main`, `options`, `serve`  the daemon

To add an operation: the document has its path and schemas; write `@operation("GET /slurm/…")` in `operations`. A test
checks that every operation of every document is there, and each answer against its schema. Other routes
(`app.application(…, routes=…)`) need no more than Starlette's `Route`.

Imports `client` and `presentation`, never `core` or `scheduling`. Needs the extra `rest`.
"""
