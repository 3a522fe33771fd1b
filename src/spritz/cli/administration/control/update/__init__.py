"""`scontrol update`, `create` and `delete`: which entity a line is about, and the keys of each.

Map
---
`entities`   the key that names the entity, and the module that changes it
`job`        `update JobId=`, of one or several jobs; `job_keys`: what each key changes, or why it is refused
`node`, `partition`, `step`   the keys of these
`power`      SuspendExcNodes, SuspendExcParts, SuspendExcStates
"""
