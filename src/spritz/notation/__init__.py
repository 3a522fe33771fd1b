"""Parsers and formatters of the small languages in Slurm's options, files and listings.

Owns how values are written. Must not know jobs, nodes or clocks, import other packages, or do I/O. Each module holds
one language: a parser, which raises a `NotationError` (a ValueError) that says what is wrong, and a formatter if the
value is printed. Every parser takes any string at all, and runs in time linear in its length.

Map
---
`hostlist`      `gpu[1-4,7]`                    `ranges`        `0-99:4%8`, CPU lists, bit formats
`duration`      `1-02:03:04`                    `times`         `now+3hours`, `2030-01-02T10:00`
`memory`        `4G`                            `nodecount`     `2-4`, `1k`, other counts
`tres`          `cpu=4,mem=8G`                  `gres`          `gpu:a100:2`, `gpu:2(IDX:0-1)`
`jobid`         `12_[3-5%2]`, `12+1`, `12.batch` `dependency`   `afterok:12:13,singleton`
`features`      `[a|b]&c`                       `signals`       `B:USR1@90`
`filename`      `out-%A_%4a`                    `getopt`        command lines as GNU getopt_long reads them
`layout/`       tasks on nodes and CPUs: `block:cyclic`, `2(x3),1`, `--cpu-bind`
`lines/`        files of users: `#SBATCH` lines, crontabs, `srun --multi-prog`
`names`         the nearest word                `oneline`       text within a line of output
`errors`        `NotationError`                 `value`         base of the records
`mail_types`    `--mail-type`                   `octets`        text that is not UTF-8
`licenses`      `matlab:2,idl`, `a|b`           `extra`         `(load<0.5&disk="ssd")|a=1`

Import the module you need, never this package: commands must start fast.
"""
