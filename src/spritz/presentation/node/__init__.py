"""Nodes and partitions, as sinfo and scontrol show them.

`node_fields`   sinfo (nodes and their partition)
`node_groups`   sinfo's lines: nodes of a partition whose shown values are equal
`node_record`   `scontrol show node`
`partition_text` `scontrol show partition`
`node_states`   names of states, and --states
`node_text`     values that catalogues, records and JSON share
"""
