"""Nodes: registered, changed, rebooted, powered up and down, lost.

`registration`    RegisterNode: both sides compare what runs there
`states`          UpdateNode, NodeLost, NodeSilent, NodeTrouble
`dynamic`         nodes that are added and removed at run time
`node_failure`    what becomes of the jobs of a node that is lost or DOWN
`failing_nodes`   drains a node on which one job after the other fails at once
`rebooting`       reboots: requested, ordered, complete
`power`           power saving: when nodes are powered down and up; `powering`: at the rates that are permitted
`changing`        nodes that get other features for a job; `changed`: they have come back
`wake`            jobs go on when the last of their nodes is up
"""
