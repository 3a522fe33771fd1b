"""What all daemons' commands have in common, up to a process that serves.

`daemon_command`  help and version, error texts, exit status
`daemon_options`  command lines as getopt(3) reads them
`service`         from the command to a serving process: directories, pid file, log, daemonizing
`daemonize`       `daemonize() -> Startup`, `foreground()`; `Startup.serves()` lets the starting command return
`pidfile`         `PidFile`: one daemon per file, held by a lock
`systemd`         `ServiceManager`: `ready()`, which `--systemd` requires, and `alive()` for its watchdog
"""
