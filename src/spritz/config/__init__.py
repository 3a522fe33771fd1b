"""slurm.conf and related files: Slurm's grammar in, typed values out.

Map
---
`grammar`      text -> lines -> tokens that remember file and line
`kinds`        one value: text -> typed value -> text again
`schema/`      the table of every key: kind, default, meaning; `schema/status.py` says which of them work
`settings`     the single keys of slurm.conf, with their defaults; %n and %h
`fixed`        keys that take effect only when a daemon starts
`typed`        tokens -> `Settings`, `NodeLine`, `PartitionLine`, `GresLine` …
`gres`         Gres= and gres.conf; what a node has according to both
`geometry`     boards, sockets, cores, threads and CPUs from whichever of them are given
`check`        what a single line cannot show: duplicates, unknown nodes, contradictory sizes
`diagnostics`  all faults together, each with file, line and a hint
`files`        reads files into lines, following includes
`load`         the whole configuration, from its files
`loaded`       a configuration that can be used
`build`        parsed configuration -> the frozen records of `spritz.model`
`render`       values -> text of a slurm.conf
`show`         what `scontrol show config` prints
`alone`        one file by itself, for `spritz config check`; `dynamic`: a node line outside any file
`relatives/`   topology.conf, job_container.conf, oci.conf, helpers.conf
`power`, `mcs`, `plugins`, `weights`   one subject each

Everything but `files`, `load` and `alone` is pure. Units: seconds, minutes and MiB, as each key's kind says; `INFINITE`
is "no limit".

Source: slurm.conf(5), gres.conf(5), cgroup.conf(5).
"""
