"""The verbs of `scontrol`, one file per verb or noun; each is imported when it is called.

Map
---
`session`      what one run of scontrol has: flags, controller, status
`verbs`        every keyword that Slurm's scontrol knows: done or refused; finding and calling one
`interactive`  `scontrol: ` prompts, `!!`
`pairs`        `Key=value` words, and finding their keys
`jobs`         hold, uhold, release, requeue, requeuehold, suspend, resume, top, notify, wait_job
`daemons`      ping, reconfigure, shutdown, setdebug, version, errnumstr
`show`         `show ENTITY`: every entity, done or refused; `show_job`, `show_node` … hold the records' texts
`names`        hostnames, hostlist, hostlistsorted: without a controller
`update`       `update`, `create`, `delete`: every entity; `update_job`, `update_node`, `update_partition` hold the keys
`write`        write batch_script, write config
`assoc_mgr`, `federation`, `show_config`, `show_partition`, `show_step`, `topology`   what `show` prints of these
`job_keys`, `update_power`, `update_step`   what `update` changes
`nodes`, `reservation`   `create` and `delete` of these; `modes`: keywords that affect later keywords
`this_node`, `local`   this machine: `show slurmd`, `getent`; listpids, listjobs, liststeps, pidinfo
`events`, `explain`, `token`, `help`   the verbs of these names
"""
