"""A whole cluster on virtual time: the production core and cycle, with nodes that obey immediately.

`world` drives `core.machine.Machine` and `scheduling.plan.cycle` from an event queue; `requests` turns a workload's
rows into submissions.
"""
