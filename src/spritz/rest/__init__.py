"""`slurmrestd`: Slurm's REST interface, all published versions from one implementation.

`intake`      parses bodies and queries by a version's schemas; `presentation.json.shape` shapes answers
`daemons`     connections to slurmctld and slurmdbd, a set for each caller: slurmrestd has no privileges of its own
`callers`     the caller: the Unix socket's peer (rest_auth/local), or a token (rest_auth/jwt)
`operations`  a function for each operation (`GET /slurm/jobs`), for all versions; a file for each noun
`answers`     the envelope: meta, errors, warnings; Slurm's status codes; ETags
`events`      events of the cluster, as server-sent events (/spritz/v1/events)
`picture`     resources for dashboards, in addition to Slurm's documents (/spritz/v1/jobs, nodes, explain …)
`app`         Starlette: a route for each operation of each version, and additional routes (/openapi, /docs)
`protocol`    HTTP over uvicorn, with limits on slow and greedy clients
`routing`     the operation of a path and a method; `site`: documents, hostlists; `page`: the documents as HTML
`records`     job records as JSON, quickly; `configuration`: slurm.conf, as v0.0.45 has it; `yaml`; `users`
`external`, `joining`   ends of external jobs, and tokens for machines that join (/spritz/v1)
`health`      /livez and /readyz: whether slurmctld answers
`main`, `options`, `serve`  the daemon

To add an operation: the document has its path and schemas; write `@operation("GET /slurm/…")` in `operations`. Tests
check that all operations of all documents exist, and check each answer against its schema. Other routes
(`app.application(…, routes=…)`) are plain Starlette routes. To add a field: docs/checklists/rest-field.md.

Imports `client` and `presentation`, never `core` or `scheduling`. Needs the extra `rest`.
"""
