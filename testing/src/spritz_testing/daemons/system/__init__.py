"""What stands for the operating system under the production code.

`world`        virtual time, hosts, processes, the order of events
`loop`, `threads`   what a process runs on: its event loop; threads and what they wait for
`executors`    pools of simulated threads
`identity`     hashes that come again with the seed
`network`      connections between processes: delay, partition, reset
`rates`        nothing is tried again without a pause
`machine`      what every simulated machine gives: users, the site's programs, children, logs
`disk`         what a controller's disk keeps, and how it fails; `disk_calls`: its stand-ins of `os` and `sqlite3`
`restoring`    rotten bits, and who restores the state
"""
