"""The verbs of `scontrol`, one file per verb or noun; each is imported when it is called.

Map
---
`session`      what one run of scontrol has: flags, controller, status
`verbs`        every keyword that Slurm's scontrol knows: done or refused; finding and calling one
`interactive`  `scontrol: ` prompts, `!!`
`pairs`        `Key=value` words, and finding their keys
`show/`        `show ENTITY`: every entity, and the texts of jobs, nodes, partitions …
`update/`      `update`, `create`, `delete`: every entity, and the keys of jobs, nodes, partitions …
`jobs`         hold, uhold, release, requeue, requeuehold, suspend, resume, top, notify, wait_job
`daemons`      ping, reconfigure, shutdown, setdebug, version, errnumstr
`names`        hostnames, hostlist, hostlistsorted: without a controller
`write`        write batch_script, write config
`nodes`        `create` and `delete` of nodes, reboot; `reservation`: all verbs of reservations
`modes`        keywords that affect later keywords
`this_node`, `local`   this machine: `show slurmd`, `getent`; listpids, listjobs, liststeps, pidinfo
`events`, `explain`, `token`, `help`   the verbs of these names
"""
