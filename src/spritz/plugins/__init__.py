"""Site plugins that see and change requests: job_submit in the controller, cli_filter in the commands.

Owns what a plugin sees and may change. Does no I/O besides reading a script's file and starting the programs that a Lua
script names. Must not decide in which process a plugin runs, for how long, or what its answer leads to:
`controller.plugins` and `cli.jobs.filters` do (docs/decisions/0092).

Map
---
`numbers`       Slurm's reserved numbers, and error numbers as names
`description`   a request as plugins see it: names of job_desc_msg_t, values that are not given as NO_VAL
`fields`        the table behind it: what each name reads and writes of a JobSpec; `kinds` of values; `notations` the
                texts in it
`records`       jobs, partitions and reservations as plugins see them
`answer`        what a plugin answers: a number, lines for the user, lines for the log
`builtin`       all_partitions, defaults, logging, partition, pbs, require_timelimit, throttle
`lua`           a Lua script with its `slurm` table; `lua_submit` job_submit.lua, `lua_filter` cli_filter.lua
`lua_programs`  io.popen and os.execute of a Lua script
`python`        job_submit.py
`script`     what a site's script sees, and the interface of scripts

Test it with `pytest tests/unit/plugins`.
"""
