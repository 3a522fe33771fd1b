"""Requests that change state: imperative names, one module per noun. `core.Machine.handle(command, now, caller)`
decides them.

The same structs travel from clients (the wire's `kind` is the class name). Internal ones (`ApplyPlan`, node reports,
`Tick`) are accepted only from the controller itself or a node daemon.
"""
