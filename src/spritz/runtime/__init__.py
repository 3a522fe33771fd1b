"""The seam to the machine: time, chance, disk, network, asyncio tasks, logging, and being a daemon.

The simulator can replace everything here. Packages above use these modules, never `time`, `random`, `logging` or
`asyncio`'s spawning calls. Commands import none of this.

Map
---
`clock`        `Clock` (protocol: `now()`, `monotonic()`, `sleep()`), `SystemClock`
`randomness`   `Randomness`, `SystemRandomness`, `backoff()`
`worker`       `Worker`: threads for calls that may block, with deadlines and a bounded queue
`directory`    `Directory`: users and groups of the system, looked up by a worker and cached
`tasks`        `run(main)` starts a loop (uvloop if there is one); `Supervisor` spawns asyncio tasks
`watchdog`     `Watchdog`: ends a daemon whose loop is stuck, with its stacks in the log
`stalls`       `StallWatch`: logs when the loop did not turn for 50 ms, and where it was
`log`          `configure`, `get_logger("slurmctld").info("job.started", job_id=7)`, `reopen`, `set_levels`
`disk`         `write_atomically`, `append`, `sync_directory`, `private_directory`
`pipe`         `Pipe`, `Receiver`: bytes both ways, few system calls, flow control
`sockets`      `unix_socket`, `tcp_socket`, `listen`, `connect_unix`, `connect_tcp`
`credentials`  `peer_credentials(socket)`: pid, uid and gid, by the kernel
`garbage_collection`   `tame()`, `keep_sweeping(clock)`: garbage collection on a schedule
`limits`       `allow_many_files()`: for the controller
`privilege`    `become(user)`, `lookup_user`, `is_root()`: drop to SlurmUser
`daemon/`      from a daemon's command to a serving process: command line, pid file, daemonizing, systemd
`authority`, `tls`, `munge`   the cluster's own certificates, TLS between machines, or the site's munge
`srv`, `ports`, `zone`, `programs`   DNS SRV records; lasting TCP ports; the offset from UTC; site programs
`ending`     ends a process that does not end although it was ordered to

Requests and responses are one layer up, above `wire`: `client.channel.channel` and `client.channel.server` for daemons.
"""
