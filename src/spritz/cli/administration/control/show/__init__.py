"""`scontrol show`: which entities there are, and the text of each.

Map
---
`entities`   `show ENTITY [ID]`: every entity, done or refused, and where it is shown
`job`, `node`, `partition`, `step`   the texts of these records
`config`     the configuration, and what is small: daemons, licenses
`topology`   the switches and blocks; topology.yaml
`assoc_mgr`  users, associations and QOS of the controller, with their usage
`federation` the federation of this cluster
"""
