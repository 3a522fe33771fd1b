"""Requests that only read, and their replies. The controller answers them from state, once the last event that they
could show is durable.

`fields` are attribute paths of the record (`"id"`, `"spec.name"`, `"allocation"`); the rows of the reply hold exactly
those values, in that order. Empty `fields` asks for whole records. `unless_version`: the caller has the answer of that
version already; if nothing changed, the reply is `unchanged`.

One module per subject, from which records are imported: creating a record's class takes a command some 0.1 ms.
"""
