"""Pipelines: steps that use one another's results, as jobs with dependencies (docs/decisions/0172).

Nothing of ours stays alive: `advance` submits every step whose place in the queue is known, at first in the user's
process, later in the job of a step that decides how many tasks its successors have.

`definition`  steps and pipelines in Python or YAML, traced into a plain record
`state`       one pipeline on disk: definition, values, batches of jobs and who may run them
`cache`       values of earlier steps by the content that they came from
`advance`     submits what can be submitted; `retry` and `stop`
`stepping`    what runs in a step's job
`graph`       how a pipeline fares, for the terminal and as JSON
"""
