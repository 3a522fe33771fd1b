"""Nodes, and what groups them.

`record`      `Node`, and what a node daemon measures
`partition`, `reservation`, `networks`, `machines`   one subject each
`node_features`   features that nodes can change
`membership`   which partitions a dynamic node belongs to
"""
